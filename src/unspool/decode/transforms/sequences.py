"""Rules about sequences of tokens apply to the last token, where the tokens before it have just been written.

s = (s₁, …, s_m) is due on a path  ⇔  the path ends with s₁ … s_{m−1}
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from unspool.decode.path import Path
from unspool.decode.transforms.occurrences import tokens_so_far


def due(
    sequences: Iterable[tuple[int, ...]], history: Sequence[Path]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """(row, sequence) for every sequence that the next token of that row may complete; prompts count."""
    by_length: dict[int, list[tuple[int, ...]]] = {}
    for sequence in sequences:
        by_length.setdefault(len(sequence), []).append(sequence)
    for row, path in enumerate(history):
        said = tokens_so_far(path, prompt=True)
        for length, group in by_length.items():
            if len(said) < length - 1:
                continue
            tail = said[len(said) - length + 1 :]
            for sequence in group:
                if sequence[:-1] == tail:
                    yield row, sequence
