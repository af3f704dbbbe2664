"""Models for translating, whose matrix products are of narrower numbers: of 16 bits, or of 8 on a CPU.

`in_precision` gives a copy of a model whose linear layers hold their weights so, and round what comes in; of each
self-attention, the three that multiply the same vectors are one. Everything else is as it is. On a CPU with
instructions for 8 bits (VNNI) they take half the time of fp32 and lose no BLEU that could be measured
(benchmarks/RESULTS.md); with kernels.c, which computes them and attention there, two fifths.
"""

import copy
import ctypes
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from config import TranslatingPrecision
from model import DecoderBlock, EncoderBlock, MultiHeadAttentionBlock, Transformer
from system.devices import DTYPES, choose_precision


class CastLinear(nn.Module):
    """x Wᵀ + b of a linear layer, (…, D) → (…, V), the product of numbers of a type.

    Autocast computes the same, but thinks about each operation anew, of which a search has thousands of small ones. And
    a CPU that multiplies bf16 itself reads the weights in an order of its own, into which they are put here, once.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = weight.detach().to(dtype)
        self.bias = None if bias is None else bias.detach().to(dtype)
        self.product: Callable[..., Tensor] = F.linear
        of_cpu = self.weight.device.type == "cpu" and dtype == torch.bfloat16
        if of_cpu and choose_precision("auto", self.weight.device) == "bf16":
            self.weight = torch.ops.mkldnn._reorder_linear_weight(self.weight, 128)
            self.product = lambda x, weight, bias: torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")

    def forward(self, x: Tensor) -> Tensor:
        return self.product(x.to(self.weight.dtype), self.weight, self.bias)


def rounded(x: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of x (N, D) → int8 (N, D), and what each row is to be multiplied by, (N, 1): its largest entry over 127.

    Each row has a scale of its own, so that a token is rounded in the same way whatever stands beside it in a batch.
    """
    scale = x.abs().amax(dim=1, keepdim=True).clamp_min(1e-30) / 127
    return (x * scale.reciprocal()).round_().to(torch.int8), scale


@cache
def kernels() -> ctypes.CDLL | None:
    """kernels.c, which pip compiles where it finds a C compiler; None where it did not, or this CPU has no VNNI."""
    spec = find_spec("decoding._kernels")
    if not (spec and spec.origin and torch.cpu.get_capabilities().get("avx512_vnni")):
        return None
    library = ctypes.CDLL(spec.origin)
    library.linear.argtypes = [ctypes.c_void_p] * 5 + [ctypes.c_long] * 3
    library.attend.argtypes = [ctypes.c_int] + [ctypes.c_void_p] * 10
    return library


class Int8Linear(nn.Module):
    """The same, the product in integers: 8 bits each, summed up in 32."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        whole, scale = rounded(weight.detach().float())
        self.weight, self.scale, self.bias, self.library = whole.T, scale.T, bias, kernels()
        if self.library:  # which reads them in tiles of 32 columns, four of a column together, with 128 added
            tiles = F.pad(whole.short() + 128, (0, -whole.size(1) % 16, 0, -len(whole) % 32)).to(torch.uint8)
            self.weight = tiles.view(-1, 32, tiles.size(1) // 4, 4).transpose(1, 2).contiguous()

    def forward(self, x: Tensor) -> Tensor:
        if self.library:
            if x.dtype != torch.float32 or not x.is_contiguous():
                x = x.float().contiguous()
            y = x.new_empty(*x.shape[:-1], self.scale.numel())
            tensors = (x, self.weight, self.scale, self.bias, y)
            given = (tensor if tensor is None else tensor.data_ptr() for tensor in tensors)
            self.library.linear(*given, x.numel() // x.size(-1), x.size(-1), y.size(-1))
            return y
        whole, scale = rounded(x.flatten(0, -2))
        # In place: of what takes less time than the products, memory takes the most.
        y = torch._int_mm(whole, self.weight).float().mul_(scale)
        y = y.mul_(self.scale) if self.bias is None else torch.addcmul(self.bias, y, self.scale)
        return y.view(*x.shape[:-1], y.size(-1))


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """`scaled_dot_product_attention`, in fp32 but for key and value, which may both be bf16. By kernels.c."""
    library, (b, h, t, k), s = kernels(), query.shape, key.size(2)
    assert library
    query = query if query.dtype == torch.float32 else query.float()
    mask = None if mask is None else mask.expand(b, h, t, s)
    out = query.new_empty(b, t, h, k)
    given = (x if x is None else x.data_ptr() for x in (query, key, value, mask, out))
    strides = (x if x is None else (ctypes.c_long * 4)(*x.stride()) for x in (query, key, value, mask))
    library.attend(key.dtype == torch.bfloat16, *given, (ctypes.c_long * 5)(b, h, t, s, k), *strides)
    return out.transpose(1, 2)


def in_precision(model: Transformer, precision: TranslatingPrecision) -> Transformer:
    """The model for inference, with its linear layers in a precision; embeddings and normalizations are its own."""
    # By its memo, the parameters are copied already.
    narrow = copy.deepcopy(model, {id(parameter): parameter for parameter in model.parameters()})

    def layer(weight: Tensor, bias: Tensor | None = None) -> nn.Module:
        return Int8Linear(weight, bias) if precision == "int8" else CastLinear(weight, bias, DTYPES[precision])

    library = kernels() if precision in ("bf16", "int8") else None
    for block in list(narrow.modules()):
        if isinstance(block, EncoderBlock | DecoderBlock):  # before the parts of it, which come later
            own = block.self_attention
            own.w_qkv = layer(torch.cat([own.w_q.weight, own.w_k.weight, own.w_v.weight]))
        if library and isinstance(block, MultiHeadAttentionBlock) and block.w_o.weight.is_cpu:
            block.attention, block.cached_in = attend, torch.bfloat16
        for name, linear in list(block.named_children()):
            if isinstance(linear, nn.Linear):
                setattr(block, name, layer(linear.weight, linear.bias))
    return narrow
