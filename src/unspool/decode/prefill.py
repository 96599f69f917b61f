"""Prefill: read prompts in chunks, and reuse the KV cache of earlier prompts that share a prefix with them.

    prefill(prompt) = fork(row*, c) + prompt_{>c},   row* = argmax_row c(row),   c = |common prefix|

Chunks: other requests decode between two parts of a long prompt. A chunk has at most `max_tokens` tokens of
all waiting prompts together. Half of it is for the oldest prompt, so that every prompt ends; the rest is for
the shortest ones, so that they do not wait for a long one. Agrawal et al. 2024, §4.2
(papers.bib: agrawal2024sarathi). The compiled engine gives bit-identical results however a prompt was split.

Prefix cache: idle sequences stay in the KV cache until memory is needed; the least recently used one is
evicted first. A sequence that is a prefix of another is not kept twice. Shared prefixes are stored once
(`engine.kv_cache`). Of several new prompts with a common prefix, one is read first, and the others then reuse
its row. Rows of different owners (API keys) are not shared: the time of a request must not tell what others
asked. Zheng et al. 2024, §3 (papers.bib: zheng2024sglang).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from unspool.interfaces import Step

MAX_SEQUENCES = 256
MIN_SHARED_TOKENS = 64
"""Tokens that a prompt must save by waiting for another one: a model reads about as many in one pass."""

Prompts = Sequence[Sequence[int]]
"""The tokens of prompts, or of all rows of a state."""


def longest_match(rows: Prompts, text: Sequence[int]) -> tuple[int, int]:
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

    def insert(self, row: int, rows: Prompts, owner: str = "") -> None:
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


@dataclass(eq=False)
class PendingPrompt:
    """A prompt that is being read."""

    tokens: Sequence[int]
    owner: str = ""
    read: int = 0
    """Tokens that were read, or found in the prefix cache."""
    shared: int = 0
    """Tokens that were found in the prefix cache."""
    slot: Slot | None = None
    """Its row; None before the first chunk."""
    step: Step | None = None
    """The Step after the last token."""


class Prefill:
    """The prompts of one request, and the result after the last of them: a Step and a slot, or an error."""

    def __init__(self, prompts: Prompts, owner: str = "") -> None:
        self.prompts = [PendingPrompt(list(prompt), owner) for prompt in prompts]
        self.owner = owner
        self.result: tuple[Step, Any] | Exception | None = None
        self.is_open = True
        """False after the request was cancelled."""

    @property
    def texts(self) -> Prompts:
        return [prompt.tokens for prompt in self.prompts]

    @property
    def size(self) -> int:
        return sum(len(prompt.tokens) for prompt in self.prompts)

    def join_rows(self) -> Slot | None:
        """Set the result if every prompt is complete; the new slot has the rows of all prompts."""
        steps = [prompt.step for prompt in self.prompts if prompt.step is not None]
        if len(steps) < len(self.prompts):
            return None
        slot = Slot([row for prompt in self.prompts if prompt.slot for row in prompt.slot.rows])
        slot.owner, slot.is_open = self.owner, self.is_open
        for prompt in self.prompts:
            prompt.slot = prompt.step = None
        self.result = Step.merge(steps, torch.cat), slot
        return slot

    def close(self, error: Exception | None = None) -> None:
        """End the request: its rows are removed before the next model call."""
        self.is_open = False
        self.result = self.result or error
        if isinstance(self.result, tuple):
            self.result[1].is_open = False
        for prompt in self.prompts:
            if prompt.slot is not None:
                prompt.slot.is_open = False


@dataclass(frozen=True, eq=False)
class Chunk:
    """Tokens begin … end of a prompt, to be read now."""

    prompt: PendingPrompt
    begin: int
    end: int
    source: int = 0
    """The row whose first `begin` tokens are those of the prompt, if the prompt does not have a row yet."""

    @property
    def text(self) -> Sequence[int]:
        return self.prompt.tokens[self.begin : self.end]


LongestMatch = Callable[[PendingPrompt], tuple[int, int]]
"""The row with the longest common prefix, and the length of that prefix."""


def plan_chunks(
    prompts: Sequence[PendingPrompt], max_tokens: int, longest_match: LongestMatch
) -> list[Chunk]:
    """The parts of incomplete prompts (in order of arrival) to read now, at most `max_tokens` tokens."""
    begun: dict[PendingPrompt, Chunk] = {
        prompt: Chunk(prompt, prompt.read, prompt.read) for prompt in prompts if prompt.slot is not None
    }

    def begin(prompt: PendingPrompt) -> Chunk | None:
        if prompt not in begun:
            if any(_is_worth_waiting(prompt, other) for other in begun.values()):
                return None
            row, length = longest_match(prompt)
            begun[prompt] = Chunk(prompt, length, length, row)
        return begun[prompt]

    budget = max_tokens

    def grow(prompt: PendingPrompt, limit: int) -> bool:
        nonlocal budget
        chunk = begin(prompt)
        if chunk is None:
            return False
        size = min(limit, budget, len(prompt.tokens) - chunk.end)
        begun[prompt] = Chunk(prompt, chunk.begin, chunk.end + size, chunk.source)
        budget -= size
        return True

    half = (max_tokens + 1) // 2
    next((prompt for prompt in prompts if grow(prompt, half)), None)
    for prompt in sorted(prompts, key=lambda prompt: len(prompt.tokens) - prompt.read):
        if not budget:
            break
        grow(prompt, max_tokens)
    return [chunk for chunk in begun.values() if chunk.end > chunk.begin]


def _is_worth_waiting(prompt: PendingPrompt, other: Chunk) -> bool:
    """Whether a prompt saves many tokens if it starts after the other has been read."""
    if prompt.owner != other.prompt.owner:
        return False
    # The last token is always read: the first Step follows it.
    shared = common_prefix(other.prompt.tokens, prompt.tokens[:-1])
    return shared >= other.begin + MIN_SHARED_TOKENS


def first_fitting(prefills: Sequence[Prefill], max_tokens: int) -> list[Prefill]:
    """The first requests whose prompts have at most `max_tokens` tokens together; at least one."""
    totals = accumulate(prefill.size for prefill in prefills)
    count = sum(total <= max_tokens for total in totals)
    return list(prefills[: max(1, count)])
