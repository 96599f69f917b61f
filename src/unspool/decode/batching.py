"""Continuous batching: run the sequences of many requests in one model state.

Every request has a Slot, the indices of its rows. Rows are reordered, repeated and dropped for all slots at
once, before the next model call. The rows of a slot are dropped when its request has ended or is garbage
collected; one row of an ended request may stay in the prefix cache.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any
from weakref import ref

import torch
from torch import Tensor

from unspool.decode.lockstep import DelegatingModel
from unspool.decode.prefill import (
    Chunk,
    PendingPrompt,
    Prefill,
    PrefixCache,
    Prompts,
    Slot,
    SlotState,
    first_fitting,
    longest_match,
    plan_chunks,
)
from unspool.interfaces import Forking, Joining, Step, StepModel


class SlotClosed(Exception):  # noqa: N818 — not an error of the model
    """The request of a slot has ended."""


class BatchScheduler:
    """The rows of all requests in one model state, with a prefix cache of `cache_bytes`."""

    def __init__(self, model: StepModel, joining: Joining, cache_bytes: int = 0) -> None:
        self.model, self._joining = model, joining
        self._forking = None if model.is_encoder_decoder else model.forking
        self._state: Any = None
        self._slots: list[ref[Slot]] = []
        self._tokens: list[list[int]] = []
        self._released: list[Slot] = []
        self._cache = PrefixCache(cache_bytes)
        self.read_tokens = self.shared_tokens = 0
        """Prompt tokens that the model has read, and those that the prefix cache saved."""

    @property
    def rows(self) -> int:
        return sum(len(slot.rows) for slot in self._open_slots())

    @property
    def cached_rows(self) -> int:
        return len(self._cache.slots)

    def prefill(self, requests: Sequence[Prompts]) -> list[tuple[Step, Slot] | Exception]:
        """Read the prompts of several requests completely; a request that fails gets its exception."""
        prefills = [Prefill(prompts) for prompts in requests]
        tokens = sum(prefill.size for prefill in prefills)
        while waiting := [prefill for prefill in prefills if prefill.result is None]:
            self.advance(waiting, tokens)
        return [prefill.result for prefill in prefills if prefill.result is not None]

    def advance(self, prefills: Sequence[Prefill], max_tokens: int) -> None:
        """Read at most `max_tokens` tokens of these prompts, and set the results that are complete.

        Encoder–decoders read whole requests, at least one.
        """
        self.sweep()
        forking, involved = self._forking, list(prefills)
        try:
            if forking is None:
                involved = first_fitting(prefills, max_tokens)
                self._read_whole(involved)
            else:
                chunks = self._plan(prefills, max_tokens)
                planned = {chunk.prompt for chunk in chunks}
                involved = [prefill for prefill in prefills if not planned.isdisjoint(prefill.prompts)]
                self._read_chunks(forking, chunks)
        except Exception as error:
            if len(involved) == 1:
                involved[0].close(error)
            else:  # retry one by one: only the request that causes the error fails
                for prefill in involved:
                    self.advance([prefill], max(1, max_tokens // len(involved)))
            return
        for prefill in involved:
            slot = prefill.join_rows() if forking is not None else None
            if slot is not None:
                self._slots.append(ref(slot))
            if not prefill.is_open:  # cancelled meanwhile
                prefill.close()

    def _read_whole(self, prefills: Sequence[Prefill]) -> None:
        prompts = [text for prefill in prefills for text in prefill.texts]
        sizes = [len(prefill.prompts) for prefill in prefills]
        step, state = self.model.start(prompts)
        self._join(state, prompts)
        for prefill, own, slot in zip(
            prefills, _split(step, sizes), self._add_slots(sizes, step), strict=True
        ):
            slot.owner, slot.is_open = prefill.owner, prefill.is_open
            prefill.result = own, slot

    def _plan(self, prefills: Sequence[Prefill], max_tokens: int) -> list[Chunk]:
        owners = [""] * len(self._tokens)
        for slot in (*self._open_slots(), *self._cache.slots):
            for row in slot.rows:
                owners[row] = slot.owner

        def match(prompt: PendingPrompt) -> tuple[int, int]:
            rows = zip(self._tokens, owners, strict=True)
            visible = [row if owner == prompt.owner else () for row, owner in rows]
            return longest_match(visible, prompt.tokens[:-1])  # the first Step follows the last token

        prompts = [prompt for prefill in prefills for prompt in prefill.prompts if prompt.step is None]
        return plan_chunks(prompts, max_tokens, match)

    def _read_chunks(self, forking: Forking, chunks: Sequence[Chunk]) -> None:
        if self._state is None:
            step, state = self.model.start([chunk.text for chunk in chunks])
            self._state = self._joining.join([state])
            self._add_rows(chunks)
        else:
            self._fork(forking, [chunk for chunk in chunks if chunk.prompt.slot is None])
            chunks = sorted(chunks, key=_row_of)
            rows_M = torch.tensor([_row_of(chunk) for chunk in chunks])
            step, self._state = forking.read_rows(self._state, rows_M, [chunk.text for chunk in chunks])
        for chunk, own in zip(chunks, _split(step, [1] * len(chunks)), strict=True):
            self._tokens[_row_of(chunk)] += chunk.text
            self.read_tokens += len(chunk.text)
            chunk.prompt.read = chunk.end
            if chunk.end == len(chunk.prompt.tokens):
                chunk.prompt.step = own

    def _fork(self, forking: Forking, chunks: Sequence[Chunk]) -> None:
        """Create the rows of new prompts, which begin as prefixes of other rows."""
        if not chunks:
            return
        source_K = torch.tensor([chunk.source for chunk in chunks])
        begin_K = torch.tensor([chunk.begin for chunk in chunks])
        try:
            self._state = forking.fork_rows(self._state, source_K, begin_K)
        except BaseException:
            self._select(list(range(len(self._tokens))))
            raise
        self._add_rows(chunks)

    def _add_rows(self, chunks: Sequence[Chunk]) -> None:
        for chunk in chunks:
            slot = Slot([len(self._tokens)], owner=chunk.prompt.owner)
            self._tokens.append(list(chunk.prompt.tokens[: chunk.begin]))
            self._slots.append(ref(slot))
            chunk.prompt.slot, chunk.prompt.read = slot, chunk.begin
            self._cache.mark_used(chunk.source)
            self.shared_tokens += chunk.begin
            chunk.prompt.shared = chunk.begin

    def read_all(self, prompts: Prompts) -> tuple[Tensor, Step, Slot]:
        """`PromptReading.read_all` for one request."""
        self.sweep()
        assert self.model.prompt_reading is not None
        hidden_MD, step, state = self.model.prompt_reading.read_all(prompts)
        self._join(state, prompts)
        (slot,) = self._add_slots([len(prompts)], step)
        return hidden_MD, step, slot

    def select(self, slot: Slot, rows: Sequence[int]) -> None:
        slot.rows = [slot.rows[row] for row in rows]

    def extend(self, requests: Sequence[tuple[Slot, Tensor]]) -> list[Step | Exception]:
        """Append tokens (M, T) to slots of M rows each: one model call for each T."""
        self.sweep()
        results: dict[Slot, Step | Exception] = {slot: SlotClosed() for slot, _ in requests}
        open_requests = [(slot, tokens_MT) for slot, tokens_MT in requests if slot.rows]
        for width in sorted({tokens_MT.shape[1] for _, tokens_MT in open_requests}):
            group = [(slot, tokens_MT) for slot, tokens_MT in open_requests if tokens_MT.shape[1] == width]
            self._extend(sorted(group, key=lambda pair: pair[0].rows), results)
        return [results[slot] for slot, _ in requests]

    def _extend(self, group: Sequence[tuple[Slot, Tensor]], results: dict[Slot, Step | Exception]) -> None:
        rows = [row for slot, _ in group for row in slot.rows]
        tokens_MT = torch.cat([tokens_MT for _, tokens_MT in group])
        try:
            step, self._state = self._joining.extend_rows(self._state, torch.tensor(rows), tokens_MT)
        except Exception as error:
            if len(group) == 1:
                results[group[0][0]] = error
            else:  # retry one by one: only the request that causes the error fails
                for pair in group:
                    self._extend([pair], results)
            return
        for row, tokens in zip(rows, tokens_MT.tolist(), strict=True):
            self._tokens[row] += tokens
        sizes = [tokens.numel() for _, tokens in group]
        for (slot, _), own in zip(group, _split(step, sizes), strict=True):
            results[slot] = _crop_attention(own, slot.columns)

    def rewind(self, slot: Slot, tokens: int) -> None:
        self.sweep()
        if not slot.rows:
            raise SlotClosed
        rows_M = torch.tensor(slot.rows)
        self._state = self._joining.rewind_rows(self._state, rows_M, torch.full_like(rows_M, tokens))
        for row in slot.rows if tokens else ():
            del self._tokens[row][-tokens:]

    def release(self, slot: Slot) -> None:
        """Move the first row of a slot to the prefix cache before the next model call; thread-safe."""
        self._released.append(slot)

    def sweep(self) -> None:
        """Drop the rows of closed slots, and apply the row changes of all others."""
        self._cache_released()
        live = [*self._open_slots(), *self._cache.slots]
        known_slots = {slot for reference in self._slots if (slot := reference()) is not None}
        for closed in known_slots.difference(live):
            closed.rows = []
        self._slots = [ref(slot) for slot in live[: len(live) - self.cached_rows]]
        order = [row for slot in live for row in slot.rows]
        first = 0
        for slot in live:
            slot.rows = list(range(first, first + len(slot.rows)))
            first += len(slot.rows)
        if order != list(range(len(self._tokens))):
            self._select(order)

    def _select(self, order: list[int]) -> None:
        self._tokens = [[*self._tokens[row]] for row in order]
        self._state = self._state.select(torch.tensor(order)) if order else None

    def _cache_released(self) -> None:
        forking, released = self._forking, [self._released.pop(0) for _ in range(len(self._released))]
        if forking is None:
            return
        for slot in released:
            if slot.rows:
                self._cache.insert(slot.rows[0], self._tokens, slot.owner)
        if released:
            self._cache.evict_until_fits(lambda rows: forking.bytes_held(self._state, torch.tensor(rows)))

    def compact(self) -> None:
        """Free the memory that the cached rows do not need; called when no request runs."""
        self.sweep()
        if self._forking is not None and self._state is not None:
            self._state = self._forking.compact(self._state)

    def _open_slots(self) -> list[Slot]:
        slots = [slot() for slot in self._slots]
        return [slot for slot in slots if slot is not None and slot.is_open and slot.rows]

    def _join(self, state: Any, prompts: Prompts) -> None:
        self._state = self._joining.join([state] if self._state is None else [self._state, state])
        self._tokens += [list(prompt) for prompt in prompts]
        self.read_tokens += sum(map(len, prompts))

    def _add_slots(self, sizes: Sequence[int], step: Step) -> list[Slot]:
        columns = None if step.attention is None else step.attention.shape[1]
        first, slots = len(self._tokens) - sum(sizes), []
        for size in sizes:
            slots.append(Slot(list(range(first, first + size)), columns))
            first += size
        self._slots += map(ref, slots)
        return slots


def _split(step: Step, sizes: Sequence[int]) -> list[Step]:
    """Split a Step into several of the given numbers of rows, without a copy."""
    ends = zip(sizes, accumulate(sizes), strict=True)
    return [step.map(lambda part, size=size, end=end: part[end - size : end]) for size, end in ends]  # type: ignore[misc]


def _row_of(chunk: Chunk) -> int:
    assert chunk.prompt.slot is not None
    return chunk.prompt.slot.rows[0]


def _crop_attention(step: Step, columns: int | None) -> Step:
    if step.attention is None or columns is None or step.attention.shape[1] == columns:
        return step
    return replace(step, attention=step.attention[:, :columns])


class SlotModel(DelegatingModel):
    """A model whose states are rows of a slot; a subclass defines what it does with them."""

    @property
    def rewindable(self) -> Any:
        return None if self.model.rewindable is None else self

    @property
    def prompt_reading(self) -> Any:
        return None if self.model.prompt_reading is None else self

    def step(self, state: SlotState, tokens_N: Tensor) -> tuple[Step, SlotState]:
        return self.extend(state, tokens_N[:, None])

    @abstractmethod
    def extend(self, state: SlotState, tokens_NT: Tensor) -> tuple[Step, SlotState]: ...


class CachedPrefixModel(SlotModel):
    """A model whose prompts reuse the KV cache of earlier ones.

        >>> model = CachedPrefixModel(model, 2**28)
        >>> us.generate(model, history); us.generate(model, history + question)

    The output is that of reading the whole prompt again, bit-identical with the compiled engine. It is for
    one thread, and needs a model whose rows can be forked (`Abilities.forking`).
    """

    def __init__(self, model: StepModel, cache_bytes: int) -> None:
        super().__init__(model)
        if model.joining is None or model.forking is None:
            raise ValueError(
                "prefix caching needs a language model whose cache is the keys and values of every token"
            )
        self.batch = BatchScheduler(model, model.joining, cache_bytes)
        self._last: Slot | None = None

    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Step, SlotState]:
        """Read the part of the prompts that is not cached."""
        if self._last is not None:
            self.batch.release(self._last)
        (result,) = self.batch.prefill([prompts])
        if isinstance(result, Exception):
            raise result
        step, slot = result
        return step, self._state_of(slot)

    def read_all(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Step, SlotState]:
        """`start` with the hidden states of the prompts, which are read completely."""
        hidden_MD, step, slot = self.batch.read_all(prompts)
        return hidden_MD, step, self._state_of(slot)

    def extend(self, state: SlotState, tokens_NT: Tensor) -> tuple[Step, SlotState]:
        self.batch.select(state.slot, state.rows)
        (result,) = self.batch.extend([(state.slot, tokens_NT)])
        if isinstance(result, Exception):
            raise result
        return result, _all_rows(state.slot)

    def rewind(self, state: SlotState, tokens: int) -> SlotState:
        self.batch.select(state.slot, state.rows)
        self.batch.rewind(state.slot, tokens)
        return _all_rows(state.slot)

    def _state_of(self, slot: Slot) -> SlotState:
        self._last = slot
        return _all_rows(slot)


def _all_rows(slot: Slot) -> SlotState:
    return SlotState(slot, tuple(range(len(slot.rows))))
