"""One matrix, stored in any format, and the compiled product with it."""

import numba
import numpy as np
import pytest
import torch

from unspool.engine import interleaved_matmul, matmul
from unspool.engine.matmul import Inputs
from unspool.engine.stored_weights import StoredWeight
from unspool.engine.weight_formats import BF16, F16, INT8, Q4_0, Q4_1, Q4_K, Q5_K, Q6_K, Q8_0
from unspool.engine.weight_table import WeightTable

HALVES = {Q8_0: [0], Q4_0: [0], Q4_1: [0, 2], Q4_K: [0, 2], Q5_K: [0, 2], Q6_K: [208]}
"""Where the float16 scales of a block are."""
PACKED = (INT8, F16, BF16, *HALVES)


def stored(kind, rows, columns, seed=0):
    """A matrix of any bits, with scales as they are in a model."""
    rng = np.random.default_rng(seed)
    if kind in (F16, BF16):
        numbers = torch.from_numpy(rng.standard_normal((rows, columns), np.float32))
        packed = numbers.to({F16: torch.float16, BF16: torch.bfloat16}[kind]).view(torch.uint8)
        return StoredWeight(kind, packed, (rows, columns))
    packed = rng.integers(0, 256, kind.packed_shape(rows, columns), np.uint8)
    blocks = packed.reshape(-1, kind.side * kind.block_bytes)
    if kind == INT8:
        packed[packed == 0] = 128  # −128 is not a code of this format
        scales = rng.uniform(0.001, 0.01, (len(blocks), kind.side)).astype("<f4")
        blocks[:, : 4 * kind.side] = scales.view(np.uint8)
    for at in HALVES.get(kind, []):
        scales = rng.uniform(-0.01, 0.01, (len(blocks), 1)).astype("<f2")
        blocks[:, at : at + 2] = scales.view(np.uint8)
    return StoredWeight(kind, torch.from_numpy(packed), (rows, columns))


@numba.njit
def _multiply(part, x, words, outputs, first, last):
    y = np.full((x.shape[0], outputs), np.float32(-77))
    inputs = Inputs(x.reshape(-1), np.zeros(x.shape[0] * words, np.float32))
    if matmul.needs_prepared_inputs(part):
        for n in range(x.shape[0]):
            interleaved_matmul.prepare(inputs.x, x.shape[1], n, inputs.prepared)
    matmul.product(part, inputs, x.shape[0], y.reshape(-1), first, last)
    return y


@numba.njit
def _gather(part, row, inputs):
    y = np.zeros(3 * inputs, np.float32)
    matmul.embed_row(part, row, y, 1)
    return y


@pytest.fixture(scope="session")
def multiplied():
    """x · Wᵀ + b of stacked stored weights, the outputs from `first` to `last` − 1; others are −77."""

    def call(pieces, x, bias=None, first=0, last=None):
        weights = WeightTable(0)
        weights.put_stored(0, 0, pieces, bias)
        outputs = sum(piece.shape[0] for piece in pieces)
        last = outputs if last is None else last
        return _multiply(weights.table[0, 0], x, weights.prepared_words(), outputs, first, last)

    return call


@pytest.fixture(scope="session")
def gathered():
    """A restored row of a stored weight, with as many zeros before and behind it."""

    def call(weight, row):
        weights = WeightTable(0)
        weights.put_stored(0, 0, [weight])
        return _gather(weights.table[0, 0], row, weight.shape[1])

    return call
