"""Reproducible random orders, and the choice of rows held out for validation.

Random numbers are pure functions of integers and the same on every machine: only the raw stream of Philox is
used, whose bits numpy guarantees, unlike the methods of its Generator.
"""

from __future__ import annotations

import hashlib
import operator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def random_bits(count: int, *seed: int) -> npt.NDArray[np.uint64]:
    """Return `count` random 64-bit numbers."""
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
        start_N = _mix(seeds_N ^ _mix(np.array([purpose + 1], dtype=np.uint64) * _GAMMA))
        mixed_NC = _mix(start_N[:, None] + np.arange(1, count + 1, dtype=np.uint64) * _GAMMA)
    return (mixed_NC >> np.uint64(11)).astype(np.float64) * 2.0**-53


_GAMMA = np.uint64(0x9E3779B97F4A7C15)


def _mix(bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def random_permutation(count: int, *seed: int) -> Ints:
    """Return 0 … count − 1 in random order."""
    return np.argsort(random_bits(count, *seed), kind="stable")


def random_below(limit: int, *seed: int) -> int:
    """Return a random number in 0 … limit − 1."""
    return int(random_bits(1, *seed)[0] % np.uint64(limit))


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """The part of the training data held out for validation, if there is no validation data."""

    valid_share: float = 0.0
    """Share of the rows held out for validation, from 0 to 1."""
    valid_lines: int = 0
    """Number of rows held out for validation."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.valid_share < 1.0:
            raise ValueError(f"valid_share is {self.valid_share}; it must be at least 0 and less than 1")
        if self.valid_lines < 0:
            raise ValueError(f"valid_lines is {self.valid_lines}; it must be 0 or more")
        if self.valid_share and self.valid_lines:
            raise ValueError("valid_share and valid_lines are both given: choose one of them")

    @property
    def holds_out(self) -> bool:
        """True if any row is held out."""
        return bool(self.valid_share or self.valid_lines)

    @property
    def hangs_together(self) -> bool:
        """True if neighbouring rows belong together: then the last rows are held out, not random ones."""
        return False

    def held(self, count: int, seed: int) -> npt.NDArray[np.bool_]:
        """Return a mask of `count` rows: True for those held out."""
        mask = np.zeros(count, dtype=np.bool_)
        if not self.holds_out:
            return mask
        wanted = self.valid_lines or max(1, round(self.valid_share * count))
        if wanted >= count:
            raise ValueError(
                f"{wanted} rows are to be held out for validation, but there are only {count}: hold out fewer"
            )
        mask[
            np.arange(count - wanted, count)
            if self.hangs_together
            else random_permutation(count, seed)[:wanted]
        ] = True
        return mask
