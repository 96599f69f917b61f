"""Packed numbers made on the spot, of every format."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from unspool.engine.stored_weights import StoredWeight
from unspool.engine.weight_formats import (
    BF16,
    F16,
    F32,
    FORMATS,
    INT8,
    Q4_0,
    Q4_1,
    Q4_K,
    Q5_0,
    Q5_1,
    Q5_K,
    Q6_K,
    Q8_0,
    WeightFormat,
)

HALVES = {
    Q8_0: [0],
    Q4_0: [0],
    Q4_1: [0, 2],
    Q5_0: [0],
    Q5_1: [0, 2],
    Q4_K: [0, 2],
    Q5_K: [0, 2],
    Q6_K: [208],
}
"""Where the float16 scales of a block are."""


def packed_bytes(kind: WeightFormat, rows: int, columns: int, seed: int = 0) -> torch.Tensor:
    """Any bits for the numbers, and scales as they are in a model."""
    rng = np.random.default_rng(seed)
    if kind.block == 1:
        numbers = torch.from_numpy(rng.standard_normal((rows, columns), np.float32))
        kept = {F32: torch.float32, F16: torch.float16, BF16: torch.bfloat16}[kind]
        return numbers.to(kept).view(torch.uint8)
    packed = rng.integers(0, 256, kind.packed_shape(rows, columns), np.uint8)
    blocks = packed.reshape(-1, kind.side * kind.block_bytes)
    if kind == INT8:
        scales = rng.uniform(0.001, 0.01, (len(blocks), kind.side)).astype("<f4")
        blocks[:, : 4 * kind.side] = scales.view(np.uint8)
    for at in HALVES.get(kind, []):
        scales = rng.uniform(-0.01, 0.01, (len(blocks), 1)).astype("<f2")
        blocks[:, at : at + 2] = scales.view(np.uint8)
    return torch.from_numpy(packed)


@pytest.fixture(params=FORMATS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> WeightFormat:
    return request.param


@pytest.fixture
def stored() -> Callable[..., StoredWeight]:
    def make(kind: WeightFormat, rows: int = 6, columns: int = 512, seed: int = 0) -> StoredWeight:
        return StoredWeight(kind, packed_bytes(kind, rows, columns, seed), (rows, columns))

    return make
