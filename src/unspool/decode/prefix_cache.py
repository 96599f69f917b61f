"""Prefix cache: reuse the KV cache of earlier prompts that share a prefix with a new one.

    prefill(prompt) = fork(row*, c) + prompt_{>c},   row* = argmax_row c(row),   c = |common prefix|

Idle sequences stay in the KV cache until memory is needed; the least recently used one is evicted first. A
sequence that is a prefix of another is not kept twice. Shared prefixes are stored once (`engine.kv_cache`).
Of several new prompts with a common prefix, one is read first, and the others then reuse its row (`prefill`).
Rows of different owners (API keys) are not shared: the time of a request must not tell what others asked.
Zheng et al. 2024, §3 (papers.bib: zheng2024sglang).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

MAX_SEQUENCES = 256
"""Maximum number of idle sequences in a prefix cache."""
MIN_SHARED_TOKENS = 64
"""Tokens that a prompt must save by waiting for another one: a model reads about as many in one pass."""

Rows = Sequence[Sequence[int]]
"""The tokens of all rows of a state."""


def longest_match(rows: Rows, text: Sequence[int]) -> tuple[int, int]:
    """The row with the longest common prefix with a text, and the length of that prefix."""
    lengths = [common_prefix(row, text) for row in rows]
    best = max(lengths, default=0)
    return (lengths.index(best), best) if best else (0, 0)


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    same, longest = 0, min(len(a), len(b))
    while same < longest:  # compare halves: slices are compared faster than tokens
        middle = (same + longest + 1) // 2
        if a[same:middle] == b[same:middle]:
            same = middle
        else:
            longest = middle - 1
    return same


@dataclass(eq=False)
class Slot:
    """The rows of one request in a batch that many requests share."""

    rows: list[int]
    columns: int | None = None
    """Source positions in the attention of its Steps; the source of another request may be longer."""
    is_open: bool = True
    """False after its request has ended."""
    owner: str = ""
    """Only requests of the same owner share prefixes."""


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

    def insert(self, row: int, rows: Rows, owner: str = "") -> None:
        """Add a row; it replaces the rows of this owner that are prefixes of it."""

        def is_replaced(slot: Slot) -> bool:
            tokens = rows[slot.rows[0]]
            return slot.owner == owner and tokens == rows[row][: len(tokens)]

        self.slots = [slot for slot in self.slots if not is_replaced(slot)]
        self.slots.append(Slot([row], owner=owner))

    def mark_used(self, row: int) -> None:
        """Make a row the most recently used one if it is in the cache."""
        self.slots.sort(key=lambda slot: slot.rows[0] == row)

    def evict_until_fits(self, bytes_held: Callable[[Sequence[int]], int]) -> None:
        """Evict the least recently used rows until the others fit into the memory."""
        self.slots = self.slots[-MAX_SEQUENCES:]
        while self.slots and bytes_held([slot.rows[0] for slot in self.slots]) > self._max_bytes:
            del self.slots[0]
