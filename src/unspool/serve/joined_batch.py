"""The rows of many askers in one state of one model: read side by side, whoever they belong to.

Every asker has a Lane, which knows where its rows stand. Rows are reordered, repeated and dropped for all
lanes at once, before the model is called. A lane that nobody holds any more is gone, and its rows with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any
from weakref import ref

import torch
from torch import Tensor

from unspool.protocols import Joining, Step, StepModel

Prompts = Sequence[Sequence[int]]


@dataclass(eq=False)
class Lane:
    """Where the rows of one asker's state stand in the batch."""

    rows: list[int]
    columns: int | None = None
    """Places of the source that its Steps tell of; a batch-mate's source may be longer."""
    open: bool = True
    """False from when its asker has left."""


class JoinedBatch:
    """Rows of all askers, in one state."""

    def __init__(self, model: StepModel, joining: Joining) -> None:
        self.model, self._joining = model, joining
        self._state: Any = None
        self._size = 0
        self._lanes: list[ref[Lane]] = []

    @property
    def rows(self) -> int:
        """How many there are of lanes that somebody holds."""
        return sum(len(lane.rows) for lane in self._alive())

    def begin(self, asked: Sequence[Prompts]) -> list[tuple[Step, Lane] | Exception]:
        """Read the prompts of several askers in one pass; what went wrong, where it did."""
        self.sweep()
        try:
            step, state = self.model.start([prompt for prompts in asked for prompt in prompts])
        except Exception as error:
            if len(asked) == 1:
                return [error]
            return [self.begin([prompts])[0] for prompts in asked]
        sizes = [len(prompts) for prompts in asked]
        lanes = self._take_in(state, sizes, step)
        return list(zip(_cut(step, sizes), lanes, strict=True))

    def read_all(self, prompts: Prompts) -> tuple[Tensor, Step, Lane]:
        """`PromptReading.read_all` for one asker."""
        self.sweep()
        assert self.model.prompt_reading is not None
        hidden_NTD, step, state = self.model.prompt_reading.read_all(prompts)
        (lane,) = self._take_in(state, [len(prompts)], step)
        return hidden_NTD, step, lane

    def pick(self, lane: Lane, rows: Sequence[int]) -> None:
        """Reorder, repeat or drop the rows of a lane."""
        lane.rows = [lane.rows[row] for row in rows]

    def extend(self, asked: Sequence[tuple[Lane, Tensor]]) -> list[Step | Exception]:
        """Append tokens (M, T) to lanes of M rows each: one call of the model for each T that there is."""
        self.sweep()
        said: dict[Lane, Step | Exception] = {}
        for width in sorted({tokens_MT.shape[1] for _, tokens_MT in asked}):
            group = [(lane, tokens_MT) for lane, tokens_MT in asked if tokens_MT.shape[1] == width]
            self._extend(sorted(group, key=lambda pair: pair[0].rows), said)
        return [said[lane] for lane, _ in asked]

    def _extend(self, group: Sequence[tuple[Lane, Tensor]], said: dict[Lane, Step | Exception]) -> None:
        rows_M = torch.tensor([row for lane, _ in group for row in lane.rows])
        tokens_MT = torch.cat([tokens_MT for _, tokens_MT in group])
        try:
            step, self._state = self._joining.extend_rows(self._state, rows_M, tokens_MT)
        except Exception as error:
            if len(group) == 1:
                said[group[0][0]] = error
            else:  # whose fault was it? The others go on.
                for pair in group:
                    self._extend([pair], said)
            return
        sizes = [tokens.numel() for _, tokens in group]
        for (lane, _), own in zip(group, _cut(step, sizes), strict=True):
            said[lane] = _narrowed(own, lane.columns)

    def rewind(self, lane: Lane, tokens: int) -> None:
        """Forget the last tokens of a lane's rows."""
        self.sweep()
        rows_M = torch.tensor(lane.rows)
        self._state = self._joining.rewind_rows(self._state, rows_M, torch.full_like(rows_M, tokens))

    def sweep(self) -> None:
        """Drop the rows of those who have left, and put those of all others where their lanes want them."""
        alive = self._alive()
        self._lanes = [ref(lane) for lane in alive]
        order = [row for lane in alive for row in lane.rows]
        first = 0
        for lane in alive:
            lane.rows = list(range(first, first + len(lane.rows)))
            first += len(lane.rows)
        if not order:
            self._state = None
        elif order != list(range(self._size)):
            self._state = self._state.select(torch.tensor(order))
        self._size = len(order)

    def _alive(self) -> list[Lane]:
        held = [lane() for lane in self._lanes]
        return [lane for lane in held if lane is not None and lane.open and lane.rows]

    def _take_in(self, state: Any, sizes: Sequence[int], step: Step) -> list[Lane]:
        self._state = state if self._state is None else self._joining.join([self._state, state])
        columns = None if step.attention is None else step.attention.shape[1]
        lanes = []
        for size in sizes:
            lanes.append(Lane(list(range(self._size, self._size + size)), columns))
            self._size += size
        self._lanes += map(ref, lanes)
        return lanes


def _cut(step: Step, sizes: Sequence[int]) -> list[Step]:
    """A Step as several, of so many rows each; no number is copied."""
    ends = list(accumulate(sizes))
    return [_rows(step, slice(end - size, end)) for size, end in zip(sizes, ends, strict=True)]


def _rows(step: Step, rows: slice) -> Step:
    return Step(
        step.logp_NV[rows],
        *(
            None if part is None else part[rows]
            for part in (step.hidden_ND, step.attention, step.score_NV, step.exits_NEV, step.log_norm_N)
        ),
    )


def _narrowed(step: Step, columns: int | None) -> Step:
    if step.attention is None or columns is None or step.attention.shape[1] == columns:
        return step
    return replace(step, attention=step.attention[:, :columns])
