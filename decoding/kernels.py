"""kernels.c, compiled: an 8-bit linear layer and the attention of few queries, in one pass over memory each.

pip compiles it where it finds a C compiler. It computes on CPUs with AVX512-VNNI; elsewhere, and without it, torch
computes the same (inference.py).
"""

import ctypes
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor
from torch.nn import functional as F

from system.devices import cpu_features

ROWS, DEPTH = 32, 4  # a tile of packed weights: 32 output columns, four input numbers of each side by side


@cache
def kernels() -> ctypes.CDLL | None:
    """The compiled library. None if it was not compiled, or if this CPU has no AVX512-VNNI."""
    spec = find_spec("decoding._kernels")
    if not (spec and spec.origin and "avx512_vnni" in cpu_features()):
        return None
    library = ctypes.CDLL(spec.origin)
    library.linear.argtypes = [ctypes.c_void_p] * 5 + [ctypes.c_long] * 3
    library.attend.argtypes = [ctypes.c_int] + [ctypes.c_void_p] * 10
    return library


def pack_weight(weight: Tensor) -> Tensor:
    """An int8 weight (V, D) in the order that `linear` reads: tiles of 32 rows by 4 columns, uint8 with 128 added."""
    v, d = weight.shape
    padded = F.pad(weight.short() + 128, (0, -d % 16, 0, -v % ROWS)).to(torch.uint8)
    return padded.view(-1, ROWS, padded.size(1) // DEPTH, DEPTH).transpose(1, 2).contiguous()


def linear(library: ctypes.CDLL, x: Tensor, packed: Tensor, scale: Tensor, bias: Tensor | None) -> Tensor:
    """x (…, D) times packed weights, of which row v is to be multiplied by scale[v], plus bias (V) → (…, V) in fp32."""
    if x.dtype != torch.float32 or not x.is_contiguous():
        x = x.float().contiguous()
    y = x.new_empty(*x.shape[:-1], scale.numel())
    pointers = (None if tensor is None else tensor.data_ptr() for tensor in (x, packed, scale, bias, y))
    library.linear(*pointers, x.numel() // x.size(-1), x.size(-1), y.size(-1))
    return y


def attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Replaces `scaled_dot_product_attention`, in fp32, but for key and value, which may both be bf16."""
    library = kernels()
    assert library
    (b, h, t, k), s = query.shape, key.size(2)
    query = query if query.dtype == torch.float32 else query.float()
    mask = None if mask is None else mask.expand(b, h, t, s)
    out = query.new_empty(b, t, h, k)
    pointers = (None if tensor is None else tensor.data_ptr() for tensor in (query, key, value, mask, out))
    strides = (
        None if tensor is None else (ctypes.c_long * 4)(*tensor.stride()) for tensor in (query, key, value, mask)
    )
    library.attend(key.dtype == torch.bfloat16, *pointers, (ctypes.c_long * 5)(b, h, t, s, k), *strides)
    return out.transpose(1, 2)
