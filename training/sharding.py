"""Sharding: every process holds a part of the weights, of their gradients and of the optimizer's moments.

With --shard, torch's FSDP2 divides them among the processes, for models that are too large for one GPU (stage 3 of
ZeRO, Rajbhandari et al. 2020, arXiv 1910.02054). The weights of a block are whole only while it computes. Only the
matrices that attention in ranges joins (fast/attention.py) stay until the backward pass. Without --shard, each
process holds all of them, 16 bytes a weight with Adam in fp32, which is faster wherever it fits.
"""

import torch
from torch import nn

from config import Config
from fast.forward import PackedBatchLoss
from tapis.config import ConfigError, Precision
from training.objective import BatchLoss


def check_shardable(config: Config, precision: Precision) -> None:
    """Raise ConfigError if a run is to be divided among processes and cannot be."""
    if not config.shard:
        return
    if config.optimizer == "muon" or precision == "fp16":
        raise ConfigError("--shard works with --optimizer adam, and with --precision bf16 or fp32")


def shard(model_loss: BatchLoss | PackedBatchLoss, device: torch.device, size: int, precision: Precision) -> nn.Module:
    """Divide the weights among `size` processes, in place. All must call it together, with the same weights.

    Processes get the mean of their gradients, as with DistributedDataParallel. In bf16, they exchange the weights of
    blocks in bf16: autocast would keep copies of whole weights, in bf16, until the backward pass.
    """
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415 - a second, for what few use
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard  # noqa: PLC0415

    mesh = init_device_mesh(device.type, (size,))
    model = model_loss.model
    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16 if precision == "bf16" else None,
        reduce_dtype=torch.float32,
        cast_forward_inputs=False,
    )

    # Each block by itself.
    for block in (*model.encoder.blocks, *model.decoder.blocks):
        fully_shard(block, mesh=mesh, mp_policy=policy)

    # The rest: embeddings, projection and last normalizations.
    fully_shard(model_loss, mesh=mesh)
    for module in model_loss.modules():
        if isinstance(module, FSDPModule):
            module.set_force_sum_reduction_for_comms(True)  # Gloo cannot average
    return model_loss
