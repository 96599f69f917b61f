"""Randomness that needs no saving: every batch has a seed of its own.

    seed(batch) = hash(seed of the run, number of the batch)

The batch's number counts over all epochs and processes, so that dropout is the same whether a run was
interrupted or not, and whether one process works on an update or several share it.

    seed(row) = hash(seed of the update, the row, how many equal rows of the update come before it)

What objectives draw for a row so does not depend on how the rows of an update are split into batches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b

import torch
from torch import Tensor

from unspool.data.batch import Batch


def mixed(*parts: int | str) -> int:
    """A seed of 63 bits; parts that differ in anything give seeds that have nothing in common."""
    digest = blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def reseed(*parts: int | str) -> None:
    """Set torch's generators, on every device, by `mixed`."""
    torch.manual_seed(mixed(*parts))


def row_seeds(batches: Sequence[Batch], seed: int) -> list[Tensor]:
    """For each batch (N): the seeds of its rows, where these batches are all of an update."""
    seen: Counter[bytes] = Counter()
    found = []
    for batch in batches:
        seeds = []
        for row in _row_bytes(batch):
            digest = blake2b(
                row, digest_size=8, key=seed.to_bytes(8, "big"), salt=seen[row].to_bytes(8, "big")
            )
            seeds.append(int.from_bytes(digest.digest(), "big") >> 2)
            seen[row] += 1
        found.append(torch.tensor(seeds))
    return found


def _row_bytes(batch: Batch) -> list[bytes]:
    """What tells rows apart: their tokens on all sides, without padding."""
    sides = [(batch.inputs_NT, batch.lengths_N), (batch.targets_NU, batch.lengths_N)]
    if batch.source_NS is not None and batch.source_lengths_N is not None:
        sides.append((batch.source_NS, batch.source_lengths_N))
    arrays = [(tokens.cpu().numpy(), lengths.tolist()) for tokens, lengths in sides]
    return [
        b"|".join(tokens[row, : lengths[row]].tobytes() for tokens, lengths in arrays)
        for row in range(len(batch.lengths_N))
    ]
