"""Randomness that needs no saving: every batch has a seed of its own.

    seed(batch) = hash(seed of the run, number of the batch)

The batch's number counts over all epochs and processes, so that dropout is the same whether a run was
interrupted or not, and whether one process works on an update or several share it.
"""

from __future__ import annotations

from hashlib import blake2b

import torch


def mixed(*parts: int | str) -> int:
    """A seed of 63 bits; parts that differ in anything give seeds that have nothing in common."""
    digest = blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def reseed(*parts: int | str) -> None:
    """Set torch's generators, on every device, by `mixed`."""
    torch.manual_seed(mixed(*parts))
