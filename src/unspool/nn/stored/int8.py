"""Any matrix in eight bits a number: groups of 64 along its rows, each with a scale.

    w_i ≈ d · q_i,   d = max_i |w_i| / 127,   q_i = round(w_i / d)   for the 64 numbers of a group

Symmetric rounding to the nearest, ties to even: no number is off by more than d/2, and the largest of a group
by none but rounding. Activations stay float32.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from unspool.nn.stored.formats import F32, INT8
from unspool.nn.stored.weight import CHUNK, StoredWeight
from unspool.nn.stored.weight_memory import WEIGHT_MEMORY

LARGEST = 127


def quantise_int8(weight: Tensor) -> StoredWeight:
    """The matrix (rows, columns) in INT8."""
    rows, columns = weight.shape
    plain = weight.detach().float().contiguous()
    return requantise_int8(StoredWeight(F32, plain.view(torch.uint8), (rows, columns)))


def requantise_int8(weight: StoredWeight) -> StoredWeight:
    """A stored matrix in INT8, made some rows at a time: it is never there in float32 as a whole."""
    rows, columns = weight.shape
    packed = WEIGHT_MEMORY.empty((rows, INT8.row_bytes(columns)), torch.uint8)
    step = max(1, CHUNK // columns)
    room = None if weight.format == F32 else torch.empty(min(step, rows), columns)
    for first in range(0, rows, step):
        last = min(first + step, rows)
        some = weight.restore(slice(first, last), None if room is None else room[: last - first])
        _pack(some, packed[first:last])
    return StoredWeight(INT8, packed, (rows, columns))


def _pack(weight: Tensor, packed: Tensor) -> None:
    missing = -weight.shape[1] % INT8.block
    groups = (F.pad(weight, (0, missing)) if missing else weight).reshape(-1, INT8.block)
    scale = groups.abs().amax(dim=1, keepdim=True) / LARGEST
    if not bool(scale.isfinite().all()):
        raise ValueError("a matrix with NaN or infinity in it cannot be stored in eight bits")
    blocks = packed.view(-1, INT8.block_bytes)
    blocks[:, :4].view(torch.float32).copy_(scale)
    # A group of zeros has no scale to divide by; of the smallest numbers, one whose division overflows.
    q = (groups / scale).nan_to_num_(0.0).round_().clamp_(-LARGEST, LARGEST)
    blocks[:, 4:].view(torch.int8).copy_(q)
