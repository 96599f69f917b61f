"""Reproducible random numbers and orders: pure functions of integers, the same on every machine.

Only the raw stream of Philox is used, whose bits numpy guarantees, unlike the methods of its Generator.
"""

from __future__ import annotations

import hashlib
import operator
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def random_bits(count: int, *seed: int) -> npt.NDArray[np.uint64]:
    seed = tuple(map(operator.index, seed))
    if any(number < 0 for number in seed):
        raise ValueError(f"the seed is {min(seed)}; it must be 0 or more")
    # Hashed, because numpy's SeedSequence treats (1,) and (1, 0) as the same seed.
    key = int.from_bytes(hashlib.sha256(repr(seed).encode()).digest()[:16], "big")
    raw: Any = np.random.Philox(key=key).random_raw(count)
    return np.asarray(raw, dtype=np.uint64)


def random_uniforms(seeds_N: npt.NDArray[np.uint64], count: int, purpose: int) -> npt.NDArray[np.float64]:
    """Return (N, count) numbers in [0, 1): an independent stream for each seed and purpose.

    Counter-based SplitMix64: number i of a stream does not need the numbers before it.
    """
    with np.errstate(over="ignore"):
        start_N = mix(seeds_N ^ mix(np.array([purpose + 1], dtype=np.uint64) * np.uint64(GOLDEN)))
        mixed_NC = mix(start_N[:, None] + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(GOLDEN))
    return (mixed_NC >> np.uint64(11)).astype(np.float64) * 2.0**-53


GOLDEN = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1
Bits = TypeVar("Bits", int, npt.NDArray[np.uint64])


def mix(bits: Bits) -> Bits:
    """The finaliser of SplitMix64 (papers.bib: steele2014fast), of a number or of an array of numbers."""
    mixed: Any = bits
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & MASK
    return mixed ^ (mixed >> 31)


def random_permutation(count: int, *seed: int) -> Ints:
    return np.argsort(random_bits(count, *seed), kind="stable")


def random_below(limit: int, *seed: int) -> int:
    return int(random_bits(1, *seed)[0] % np.uint64(limit))
