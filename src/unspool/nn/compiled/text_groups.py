"""Which texts one call reads side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def text_groups(lengths: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Texts in their order, as many at a time as have `most` tokens, and one at least: first, stop."""
    first, tokens = 0, 0
    for n, length in enumerate(lengths):
        if tokens and tokens + length > most:
            yield first, n
            first, tokens = n, 0
        tokens += length
    yield first, len(lengths)
