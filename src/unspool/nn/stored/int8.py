"""Any matrix in eight bits a number: groups of 64 along its rows, each with a scale.

    w_i ≈ d · q_i,   d = max_i |w_i| / 127,   q_i = round(w_i / d)   for the 64 numbers of a group

Symmetric rounding to the nearest, ties to even: no number is off by more than d/2, and the largest of a group
by none but rounding. 16 rows lie side by side (`formats`). Activations stay float32.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from unspool.nn.stored.formats import F32, INT8
from unspool.nn.stored.weight import CHUNK, StoredWeight
from unspool.nn.stored.weight_memory import WEIGHT_MEMORY

LARGEST, MIDDLE = 127, 128
"""The largest whole number, and the byte that stands for 0."""


def quantise_int8(weight: Tensor) -> StoredWeight:
    """The matrix (rows, columns) in INT8."""
    rows, columns = weight.shape
    plain = weight.detach().float().contiguous()
    return requantise_int8(StoredWeight(F32, plain.view(torch.uint8), (rows, columns)))


def requantise_int8(weight: StoredWeight) -> StoredWeight:
    """A stored matrix in INT8, made some rows at a time: it is never there in float32 as a whole."""
    rows, columns = weight.shape
    side = INT8.side
    packed = WEIGHT_MEMORY.empty(INT8.packed_shape(rows, columns), torch.uint8)
    step = max(1, CHUNK // (columns * side)) * side
    room = None if weight.format == F32 else torch.empty(min(step, rows), columns)
    for first in range(0, rows, step):
        last = min(first + step, rows)
        some = weight.restore(slice(first, last), None if room is None else room[: last - first])
        _pack(some, packed[first // side : -(-last // side)])
    return StoredWeight(INT8, packed, (rows, columns))


def _pack(weight: Tensor, packed: Tensor) -> None:
    """Rows to as many sets of rows side by side as they fill, the last one perhaps in part."""
    (rows, columns), side, block = weight.shape, INT8.side, INT8.block
    below, beside = -rows % side, -columns % block
    numbers = F.pad(weight, (0, beside, 0, below)) if below or beside else weight
    groups = numbers.reshape(len(packed), side, -1, block)
    scale = groups.abs().amax(dim=3, keepdim=True) / LARGEST
    if not bool(scale.isfinite().all()):
        raise ValueError("a matrix with NaN or infinity in it cannot be stored in eight bits")
    # A group of zeros has no scale to divide by; of the smallest numbers, one whose division overflows.
    q = (groups / scale).nan_to_num_(0.0).round_().clamp_(-LARGEST, LARGEST).add_(MIDDLE).to(torch.uint8)
    blocks = packed.view(len(packed), -1, side * INT8.block_bytes)
    blocks[..., : 4 * side].view(torch.float32).copy_(scale[..., 0].transpose(1, 2))
    # Four numbers are a word.
    words = blocks[..., 4 * side :].view(torch.int32).view(len(packed), -1, block // 4, side)
    words.copy_(q.view(torch.int32).permute(0, 2, 3, 1))
