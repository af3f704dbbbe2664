"""Attention of one position of each hypothesis to the slots of a `StaticCache`.

Letters in shapes are those of decoding/static_cache.py. N is the number of slots of a sentence.
"""

from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

from tapis.system.terminal import in_one_line


def attend_to_slots_by_torch(query: Tensor, slots: Tensor, mask: Tensor) -> Tensor:
    """query (L, K, H, D / H), keys and values in slots (L, N, 2, H, D / H) → (L, K, D), the heads side by side.

    mask (L, K, N), or (L, 1, N) for all hypotheses, is added to the scores: 0 or −inf, in the type of the queries.
    """
    key, value = slots.permute(2, 0, 3, 1, 4).unbind()  # (L, H, N, D / H) each
    attended = F.scaled_dot_product_attention(query.transpose(1, 2), key, value, mask[:, None])  # (L, H, K, D / H)
    return attended.transpose(1, 2).flatten(2)


@torch.library.custom_op("tapis::attend_to_slots", mutates_args=(), device_types="cuda")
def attend_to_slots(query: Tensor, slots: Tensor, mask: Tensor, position: Tensor | None) -> Tensor:
    """Replace `attend_to_slots_by_torch`, by fast/slot_attention_kernel.py.

    With a position (1,), the slots are those of positions of K hypotheses, and only those up to it are looked at. The
    kernel reads a key and a value once for all hypotheses, if one attends to it. torch's has no form for few queries:
    with one of a sentence it takes five times as long as reading the slots.
    """
    from fast.slot_attention_kernel import attend  # noqa: PLC0415 - Triton comes with torch for GPUs only

    return attend(query, slots, mask.expand(-1, query.size(1), -1), position)


@attend_to_slots.register_fake
def _(query: Tensor, slots: Tensor, mask: Tensor, position: Tensor | None) -> Tensor:
    return query.new_empty(*query.shape[:2], query.size(2) * query.size(3))


@cache
def fault_of_slot_attention(device: torch.device, dtype: torch.dtype, n_heads: int, head_size: int) -> str:
    """Return why the kernel of `attend_to_slots` cannot be used here; "" if it equals torch's attention.

    Tried on three positions of two hypotheses. That is safer than a list of GPUs, types and versions of Triton.
    """
    random = torch.Generator().manual_seed(1)
    query = torch.randn(2, 2, n_heads, head_size, generator=random).to(device, dtype)
    slots = torch.randn(2, 16, 2, n_heads, head_size, generator=random).to(device, dtype)
    mask = torch.zeros(2, 2, 16)
    mask[:, 0, 1:5] = mask[:, :, 6:] = -torch.inf
    mask = mask.to(device, dtype)
    position = torch.tensor([2], device=device)
    expected = attend_to_slots_by_torch(query, slots, mask).float()
    try:
        errors = [
            float((attend_to_slots(query, slots, mask, up_to).float() - expected).abs().max())  # the GPU's errors, too
            for up_to in (position, None)
        ]
    except Exception as error:  # no Triton, no compiler for it, no kernel for this GPU: many errors
        return f"the kernel of attention to slots fails: {in_one_line(error)}"
    return "" if all(error < 0.05 for error in errors) else "the kernel of attention to slots differs from torch's"
