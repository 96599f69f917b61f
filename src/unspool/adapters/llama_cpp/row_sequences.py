"""Which of llama.cpp's sequences holds each row.

A sequence is a number under which cells of the cache are found; one cell may be found under many. Rows that
are reordered keep their numbers, a row that is repeated gets a free number with the same cells, and a row
that is dropped gives its number back: nothing of the cache is ever copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Moves:
    """What the cache must be told before rows stand as they were asked to."""

    rows: tuple[int, ...]
    """The sequence of every row afterwards."""
    copies: tuple[tuple[int, int], ...]
    """From a sequence to a free one."""
    dropped: tuple[int, ...]
    """Sequences that no row needs any more."""


def moves(sequences: Sequence[int], rows: Sequence[int], most: int) -> Moves:
    """How rows that stand in these sequences become those asked for; `most`: how many sequences there are."""
    kept = {sequences[row] for row in rows}
    free = iter([it for it in range(most) if it not in kept])
    used: set[int] = set()
    found, copies = [], []
    for row in rows:
        place = sequences[row]
        if place in used:
            fresh = next(free, None)
            if fresh is None:
                raise ValueError(
                    f"llama.cpp holds {most} rows at most: lower batch_size, n or the width of a beam"
                )
            copies.append((place, fresh))
            place = fresh
        used.add(place)
        found.append(place)
    return Moves(tuple(found), tuple(copies), tuple(it for it in sequences if it not in kept))
