"""Readers: feed several tokens at once to a model for each row of a batch, and remove rejected ones.

    Reader.after(rows, texts)   the Step after each text, and after each drafted token behind it
    Reader.forget(lengths)      remove rejected tokens

Shapes: M rows, T new tokens of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from unspool.decode.hypothesis import Hypothesis, Job
from unspool.decode.search.sampling import PromptStart
from unspool.interfaces import Step, StepModel

RowText = tuple[Sequence[int], Sequence[int]]
"""The new tokens of a row, and drafted tokens after them."""


class Reader(Protocol):
    """Reads the rows of a batch with one model: reads new tokens, and removes rejected ones."""

    def after(self, rows: Sequence[int], texts: Sequence[RowText]) -> list[list[Step]]:
        """For each row: the Steps after its text, and after each drafted token."""
        ...

    def forget(self, lengths: Sequence[int]) -> None:
        """Remove what was read beyond so many new tokens; the next `after` must read more."""
        ...

    def keep(self, rows: Sequence[int]) -> None:
        """Drop all other rows."""
        ...


class ReaderFactory:
    """Readers for the batches of a job, which share what the model has read of a prompt."""

    def __init__(self, model: StepModel, job: Job) -> None:
        self._model, self._prompts = model, job.prompts
        self._prefills: dict[tuple[int, ...], PromptStart] = {}

    def read(self, hypotheses: Sequence[Hypothesis]) -> Reader:
        requests = [hypothesis.request for hypothesis in hypotheses]
        if self._model.joining is None:
            return SeparateReader([IncrementalReader(self._prefill((request,))) for request in requests])
        distinct = tuple(dict.fromkeys(requests))
        return JoinedReader(self._prefill(distinct), [distinct.index(request) for request in requests])

    def _prefill(self, requests: tuple[int, ...]) -> PromptStart:
        if requests not in self._prefills:
            self._prefills[requests] = PromptStart(self._model, [self._prompts[it] for it in requests])
        return self._prefills[requests]


class SeparateReader:
    """Reads row after row."""

    def __init__(self, readers: list[IncrementalReader]) -> None:
        self._readers = readers

    def after(self, rows: Sequence[int], texts: Sequence[RowText]) -> list[list[Step]]:
        return [self._readers[row].after(*text) for row, text in zip(rows, texts, strict=True)]

    def forget(self, lengths: Sequence[int]) -> None:
        for reader, length in zip(self._readers, lengths, strict=True):
            reader.forget(length)

    def keep(self, rows: Sequence[int]) -> None:
        self._readers = [self._readers[row] for row in rows]


class JoinedReader:
    """Reads all rows that have the same number of new tokens in one pass (`interfaces.Joining`)."""

    def __init__(self, prefill: PromptStart, places: list[int]) -> None:
        self._joining: Any = prefill.model.joining
        self._prefill, self._places = prefill, places
        self._read = [0] * len(places)
        self._state: Any = None
        self._last: list[Step] = []

    def after(self, rows: Sequence[int], texts: Sequence[RowText]) -> list[list[Step]]:
        if not self._last:
            self._last = [_row(self._prefill.step, place) for place in self._places]
        found = [
            [self._last[row]] if self._read[row] == len(text) else []
            for row, (text, _) in zip(rows, texts, strict=True)
        ]
        unread = [[*text, *more][self._read[row] :] for row, (text, more) in zip(rows, texts, strict=True)]
        for width in sorted({len(tokens) for tokens in unread} - {0}):
            own = [place for place, tokens in enumerate(unread) if len(tokens) == width]
            rows_M, tokens_MT = (
                torch.tensor([rows[it] for it in own]),
                torch.tensor([unread[it] for it in own]),
            )
            step, self._state = self._joining.extend_rows(self._started(), rows_M, tokens_MT)
            for m, place in enumerate(own):
                found[place] += [_row(step, m * width + t) for t in range(width)]
                self._last[rows[place]] = found[place][-1]
                self._read[rows[place]] += width
        return [steps[-1 - len(more) :] for steps, (_, more) in zip(found, texts, strict=True)]

    def _started(self) -> Any:
        if self._state is not None:
            return self._state
        state, rows = self._prefill.take_state(), len(self._prefill.step.logp_NV)
        return state if self._places == list(range(rows)) else state.select(torch.tensor(self._places))

    def forget(self, lengths: Sequence[int]) -> None:
        removed = {
            row: read - length
            for row, (read, length) in enumerate(zip(self._read, lengths, strict=True))
            if read > length
        }
        if removed:
            rows_M, tokens_M = torch.tensor([*removed]), torch.tensor([*removed.values()])
            self._state = self._joining.rewind_rows(self._state, rows_M, tokens_M)
        self._read = list(map(min, self._read, lengths))

    def keep(self, rows: Sequence[int]) -> None:
        self._places, self._read = [self._places[row] for row in rows], [self._read[row] for row in rows]
        self._last = [self._last[row] for row in rows] if self._last else []
        if self._state is not None and rows:
            self._state = self._state.select(torch.tensor(rows))


def _row(step: Step, row: int) -> Step:
    return step.select(torch.tensor([row], device=step.logp_NV.device))


class IncrementalReader:
    """Reads one row with one model: reads new tokens, and rewinds rejected ones."""

    def __init__(self, prefill: PromptStart) -> None:
        self._model: Any = prefill.model
        self._prefill, self._read = prefill, 0
        self._state: Any = None

    def after(self, row: Sequence[int], more: Sequence[int]) -> list[Step]:
        """1 + len(more) Steps: after the row, and after each further token."""
        unread = [*row, *more][self._read :]
        if self._state is None:
            self._last = self._prefill.step
        known = [self._last] if self._read == len(row) else []
        if unread:
            self._state = self._prefill.take_state() if self._state is None else self._state
            device = self._last.logp_NV.device
            read, self._state = self._model.extend(self._state, torch.tensor([unread], device=device))
            known += [read.select(torch.tensor([place], device=device)) for place in range(len(unread))]
            self._last, self._read = known[-1], self._read + len(unread)
        return known[-1 - len(more) :]

    def forget(self, length: int) -> None:
        """Rewind to the first `length` new tokens if more were read; the next `after` must read more."""
        if self._read > length:
            self._state = self._model.rewind(self._state, self._read - length)
            self._read = length
