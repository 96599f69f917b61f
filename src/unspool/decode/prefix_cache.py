"""Prefix cache: reuse the KV cache of earlier prompts that share a prefix with a new one.

    prefill(prompt) = fork(row*, c) + prompt_{>c},   row* = argmax_row c(row),   c = |common prefix|

Idle sequences stay in the KV cache until memory is needed; the least recently used one is evicted first. A
sequence that is a prefix of another is not kept twice. Shared prefixes are stored once (`engine.kv_cache`).
Of several new prompts with a common prefix, one is read first, and the others then reuse its row.
Zheng et al. 2024, §3 (papers.bib: zheng2024sglang).

Shapes: N rows of a state, C columns (tokens), W tokens compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

IntArray = NDArray[np.int64]
NO_TOKEN = -1
"""Padding of shorter rows."""
MAX_SEQUENCES = 256
"""Maximum number of idle sequences in a prefix cache."""
MIN_SHARED_TOKENS = 64
"""Tokens that a prompt must save by waiting for another one: a model reads about as many in one pass."""


class RowTokens:
    """The tokens of all rows of a state."""

    def __init__(self) -> None:
        self._tokens_NC: IntArray = np.full((0, 64), NO_TOKEN)
        self.lengths_N: IntArray = np.zeros(0, np.int64)

    def add(self, texts: Sequence[Sequence[int]]) -> None:
        """Add new rows after all others."""
        first = len(self.lengths_N)
        self.lengths_N = np.concatenate([self.lengths_N, np.zeros(len(texts), np.int64)])
        empty = np.full((len(texts), self._tokens_NC.shape[1]), NO_TOKEN)
        self._tokens_NC = np.concatenate([self._tokens_NC, empty])
        self.append(range(first, first + len(texts)), texts)

    def append(self, rows: Sequence[int], texts: Sequence[Sequence[int]]) -> None:
        """Append tokens to some rows."""
        for row, text in zip(rows, texts, strict=True):
            start = int(self.lengths_N[row])
            self._widen(start + len(text))
            self._tokens_NC[row, start : start + len(text)] = text
            self.lengths_N[row] += len(text)

    def rewind(self, rows: Sequence[int], tokens: int) -> None:
        for row in rows:
            self.lengths_N[row] -= tokens
            self._tokens_NC[row, self.lengths_N[row] :] = NO_TOKEN

    def select(self, rows: Sequence[int]) -> None:
        self._tokens_NC, self.lengths_N = self._tokens_NC[list(rows)], self.lengths_N[list(rows)]

    def longest_match(self, text: Sequence[int]) -> tuple[int, int]:
        """The row with the longest common prefix with a text, and the length of that prefix."""
        width = min(len(text), self._tokens_NC.shape[1])
        if not len(self.lengths_N) or not width:
            return 0, 0
        same_NW = self._tokens_NC[:, :width] == np.asarray(text[:width])
        common_N = np.where(same_NW.all(axis=1), width, same_NW.argmin(axis=1))
        row = int(common_N.argmax())
        return row, int(common_N[row])

    def is_prefix(self, prefix: int, row: int) -> bool:
        """True if the tokens of row `prefix` are a prefix of those of `row`."""
        length = int(self.lengths_N[prefix])
        return bool(np.array_equal(self._tokens_NC[row, :length], self._tokens_NC[prefix, :length]))

    def _widen(self, columns: int) -> None:
        if columns > self._tokens_NC.shape[1]:
            wider = np.full((len(self.lengths_N), max(columns, 2 * self._tokens_NC.shape[1])), NO_TOKEN)
            wider[:, : self._tokens_NC.shape[1]] = self._tokens_NC
            self._tokens_NC = wider


@dataclass(eq=False)
class Slot:
    """The rows of one request in a batch that many requests share."""

    rows: list[int]
    columns: int | None = None
    """Source positions in the attention of its Steps; the source of another request may be longer."""
    is_open: bool = True
    """False after its request has ended."""


@dataclass(frozen=True, slots=True)
class SlotState:
    """The state of a request: rows of its slot, selected lazily before the next model call."""

    slot: Slot
    rows: tuple[int, ...]

    def select(self, rows_M: Tensor) -> SlotState:
        return replace(self, rows=tuple(self.rows[row] for row in rows_M.tolist()))


class PrefixCache:
    """Idle sequences, each a slot of one row, the least recently used first."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes, self.slots = max_bytes, list[Slot]()

    def insert(self, row: int, tokens: RowTokens) -> None:
        """Add a row; it replaces the rows that are prefixes of it."""
        self.slots = [slot for slot in self.slots if not tokens.is_prefix(slot.rows[0], row)]
        self.slots.append(Slot([row]))

    def mark_used(self, row: int) -> None:
        """Make a row the most recently used one if it is in the cache."""
        self.slots.sort(key=lambda slot: slot.rows[0] == row)

    def evict_until_fits(self, bytes_held: Callable[[Sequence[int]], int]) -> None:
        """Evict the least recently used rows until the others fit into the memory."""
        self.slots = self.slots[-MAX_SEQUENCES:]
        while self.slots and bytes_held([slot.rows[0] for slot in self.slots]) > self._max_bytes:
            del self.slots[0]


class PrefixMatch(NamedTuple):
    """A prompt, and the row whose first `length` tokens are its prefix."""

    prompt: int
    row: int
    length: int


def plan_prefill(
    tokens: RowTokens, prompts: Sequence[Sequence[int]], waiting: Sequence[int]
) -> tuple[list[PrefixMatch], list[int]]:
    """The waiting prompts to read now, and those that wait because they share a prefix with one of these."""
    now, later, reading = list[PrefixMatch](), list[int](), RowTokens()
    for index in waiting:
        text = prompts[index][:-1]  # the last token is always read: the first Step is about its successor
        row, length = tokens.longest_match(text)
        if reading.longest_match(text)[1] >= length + MIN_SHARED_TOKENS:
            later.append(index)
        else:
            now.append(PrefixMatch(index, row, length))
            reading.add([prompts[index]])
    return now, later
