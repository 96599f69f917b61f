"""The rows of many askers in one state of one model: read side by side, whoever they belong to.

Every asker has a Lane, which knows where its rows stand. Rows are reordered, repeated and dropped for all
lanes at once, before the model is called. A lane that nobody holds any more is gone, and its rows with it,
but for those that are kept because another prompt may begin as they do (`shared_beginnings`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, Self
from weakref import ref

import torch
from torch import Tensor

from unspool.decode.delegating import DelegatingModel
from unspool.decode.prefix_cache import PrefixCache, PrefixMatch, RowTokens, Slot, SlotState, plan_prefill
from unspool.interfaces import Forking, Joining, Step, StepModel

Prompts = Sequence[Sequence[int]]


class SlotClosed(Exception):  # noqa: N818 — nothing went wrong
    """Its asker has left meanwhile."""


class BatchScheduler:
    """Rows of all askers, in one state."""

    def __init__(self, model: StepModel, joining: Joining, kept_bytes: int = 0) -> None:
        self.model, self._joining = model, joining
        self._forking = None if model.is_encoder_decoder else model.forking
        self._state: Any = None
        self._lanes: list[ref[Slot]] = []
        self._texts = RowTokens()
        self._left: list[Slot] = []
        self._kept = PrefixCache(kept_bytes)
        self.read_tokens = self.shared_tokens = 0
        """Of prompts: those that the model has read, and those that it had read before."""

    @property
    def rows(self) -> int:
        """How many there are of lanes that somebody holds."""
        return sum(len(lane.rows) for lane in self._alive())

    @property
    def kept(self) -> int:
        """How many rows are kept for prompts that begin as they do."""
        return len(self._kept.lanes)

    def begin(self, asked: Sequence[Prompts]) -> list[tuple[Step, Slot] | Exception]:
        """Read the prompts of several askers in one pass; what went wrong, where it did."""
        self.sweep()
        prompts, sizes = [prompt for each in asked for prompt in each], [len(each) for each in asked]
        try:
            step = self._read(prompts)
        except Exception as error:
            if len(asked) == 1:
                return [error]
            return [self.begin([each])[0] for each in asked]
        lanes = self._take_in(sizes, step)
        return list(zip(_cut(step, sizes), lanes, strict=True))

    def _read(self, prompts: Prompts) -> Step:
        """What follows each of the prompts, whose rows are then the last ones."""
        if self._forking is None or self._state is None:
            step, state = self.model.start(prompts)
            self._join(state, prompts)
            return step
        before = len(self._texts.lengths_N)
        try:
            return self._read_sharing(self._forking, prompts)
        except BaseException:
            self._select(list(range(before)))
            raise

    def _read_sharing(self, forking: Forking, prompts: Prompts) -> Step:
        waiting, steps, order = list(range(len(prompts))), list[Step](), list[int]()
        first = len(self._texts.lengths_N)
        while waiting:
            forks, waiting = plan_prefill(self._texts, prompts, waiting)
            begin = len(self._texts.lengths_N)
            row_K, length_K = (torch.tensor([fork[k] for fork in forks]) for k in (1, 2))
            self._state = forking.fork_rows(self._state, row_K, length_K)
            self._texts.add([prompts[fork.prompt][: fork.length] for fork in forks])
            rows = range(begin, begin + len(forks))
            unread = [prompts[fork.prompt][fork.length :] for fork in forks]
            step, self._state = forking.read_rows(self._state, torch.tensor(rows), unread)
            self._texts.append(rows, unread)
            steps.append(step)
            order += [fork.prompt for fork in forks]
            self._count(forks, unread)
        if order == list(range(len(prompts))):
            return steps[0] if len(steps) == 1 else _stacked(steps)
        back = sorted(range(len(order)), key=order.__getitem__)
        self._select([*range(first), *(first + place for place in back)])
        return _stacked(steps).select(torch.tensor(back))

    def _count(self, forks: Sequence[PrefixMatch], unread: Prompts) -> None:
        for fork, text in zip(forks, unread, strict=True):
            self._kept.use(fork.row)
            self.shared_tokens += fork.length
            self.read_tokens += len(text)

    def read_all(self, prompts: Prompts) -> tuple[Tensor, Step, Slot]:
        """`PromptReading.read_all` for one asker."""
        self.sweep()
        assert self.model.prompt_reading is not None
        hidden_NTD, step, state = self.model.prompt_reading.read_all(prompts)
        self._join(state, prompts)
        (lane,) = self._take_in([len(prompts)], step)
        return hidden_NTD, step, lane

    def pick(self, lane: Slot, rows: Sequence[int]) -> None:
        """Reorder, repeat or drop the rows of a lane."""
        lane.rows = [lane.rows[row] for row in rows]

    def extend(self, asked: Sequence[tuple[Slot, Tensor]]) -> list[Step | Exception]:
        """Append tokens (M, T) to lanes of M rows each: one call of the model for each T that there is."""
        self.sweep()
        said: dict[Slot, Step | Exception] = {lane: SlotClosed() for lane, _ in asked}
        here = [(lane, tokens_MT) for lane, tokens_MT in asked if lane.rows]
        for width in sorted({tokens_MT.shape[1] for _, tokens_MT in here}):
            group = [(lane, tokens_MT) for lane, tokens_MT in here if tokens_MT.shape[1] == width]
            self._extend(sorted(group, key=lambda pair: pair[0].rows), said)
        return [said[lane] for lane, _ in asked]

    def _extend(self, group: Sequence[tuple[Slot, Tensor]], said: dict[Slot, Step | Exception]) -> None:
        rows = [row for lane, _ in group for row in lane.rows]
        tokens_MT = torch.cat([tokens_MT for _, tokens_MT in group])
        try:
            step, self._state = self._joining.extend_rows(self._state, torch.tensor(rows), tokens_MT)
        except Exception as error:
            if len(group) == 1:
                said[group[0][0]] = error
            else:  # whose fault was it? The others go on.
                for pair in group:
                    self._extend([pair], said)
            return
        self._texts.append(rows, tokens_MT.tolist())
        sizes = [tokens.numel() for _, tokens in group]
        for (lane, _), own in zip(group, _cut(step, sizes), strict=True):
            said[lane] = _narrowed(own, lane.columns)

    def rewind(self, lane: Slot, tokens: int) -> None:
        """Forget the last tokens of a lane's rows."""
        self.sweep()
        if not lane.rows:
            raise SlotClosed
        rows_M = torch.tensor(lane.rows)
        self._state = self._joining.rewind_rows(self._state, rows_M, torch.full_like(rows_M, tokens))
        self._texts.forget(lane.rows, tokens)

    def keep(self, lane: Slot) -> None:
        """Its asker is done, or will not mind: other prompts may begin as its first row does.

        Another thread may call this; it is done before the next call of the model.
        """
        self._left.append(lane)

    def sweep(self) -> None:
        """Drop the rows of those who have left, and put those of all others where their lanes want them."""
        self._keep_left()
        alive = [*self._alive(), *self._kept.lanes]
        for gone in {lane for it in self._lanes if (lane := it()) is not None}.difference(alive):
            gone.rows = []
        self._lanes = [ref(lane) for lane in alive[: len(alive) - self.kept]]
        order = [row for lane in alive for row in lane.rows]
        first = 0
        for lane in alive:
            lane.rows = list(range(first, first + len(lane.rows)))
            first += len(lane.rows)
        if order != list(range(len(self._texts.lengths_N))):
            self._select(order)

    def _select(self, order: list[int]) -> None:
        self._texts.select(order)
        self._state = self._state.select(torch.tensor(order)) if order else None

    def _keep_left(self) -> None:
        """A row of each who has left, as far as memory goes."""
        forking, left = self._forking, [self._left.pop(0) for _ in range(len(self._left))]
        if forking is None:
            return
        for lane in left:
            if lane.rows:
                self._kept.add(lane.rows[0], self._texts)
        if left:
            self._kept.shrink(lambda rows: forking.bytes_held(self._state, torch.tensor(rows)))

    def compact(self) -> None:
        """Nobody asks just now: hold no more memory than what is kept needs."""
        self.sweep()
        if self._forking is not None and self._state is not None:
            self._state = self._forking.compact(self._state)

    def _alive(self) -> list[Slot]:
        held = [lane() for lane in self._lanes]
        return [lane for lane in held if lane is not None and lane.open and lane.rows]

    def _join(self, state: Any, prompts: Prompts) -> None:
        self._state = state if self._state is None else self._joining.join([self._state, state])
        self._texts.add(prompts)
        self.read_tokens += sum(map(len, prompts))

    def _take_in(self, sizes: Sequence[int], step: Step) -> list[Slot]:
        """Lanes for the rows that came last."""
        columns = None if step.attention is None else step.attention.shape[1]
        first, lanes = len(self._texts.lengths_N) - sum(sizes), []
        for size in sizes:
            lanes.append(Slot(list(range(first, first + size)), columns))
            first += size
        self._lanes += map(ref, lanes)
        return lanes


def _cut(step: Step, sizes: Sequence[int]) -> list[Step]:
    """A Step as several, of so many rows each; no number is copied."""
    ends = list(accumulate(sizes))
    return [_rows(step, slice(end - size, end)) for size, end in zip(sizes, ends, strict=True)]


def _stacked(steps: Sequence[Step]) -> Step:
    """The rows of several Steps of one model, one behind the other."""

    def part(name: str) -> Tensor | None:
        values = [getattr(step, name) for step in steps]
        return None if values[0] is None else torch.cat(values)

    others = {name: part(name) for name in ("hidden_ND", "attention", "score_NV", "exits_NEV", "log_norm_N")}
    return Step(torch.cat([step.logp_NV for step in steps]), **others)


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


class CachedPrefixModel(DelegatingModel):
    """For one thread, and for models whose rows can be forked (`Abilities.forking`).

    A model that remembers what it has read: a text that begins as an earlier one is read from where they
    part.

        >>> model = Remembering(model); us.generate(model, history); us.generate(model, history + question)

    What it says is the same, to the bit, as what the model says that reads it all again.
    """

    def __init__(self, model: StepModel, kept_bytes: int) -> None:
        super().__init__(model)
        if model.joining is None or model.forking is None:
            raise ValueError("this model reads every text from its beginning: its steps are not compiled")
        self.batch = BatchScheduler(model, model.joining, kept_bytes)
        self._last: Slot | None = None

    @property
    def rewindable(self) -> Self | None:
        """Itself, where the model can rewind."""
        return None if self.model.rewindable is None else self

    @property
    def prompt_reading(self) -> Self | None:
        """Itself, where the model can tell."""
        return None if self.model.prompt_reading is None else self

    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Step, SlotState]:
        """Read what no earlier text has in common with the prompts."""
        if self._last is not None:
            self.batch.keep(self._last)
        (found,) = self.batch.begin([prompts])
        if isinstance(found, Exception):
            raise found
        step, lane = found
        return step, self._own(lane)

    def read_all(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Step, SlotState]:
        """`start`, with the hidden vectors of the prompts before it: these are read from their beginning."""
        hidden_NTD, step, lane = self.batch.read_all(prompts)
        return hidden_NTD, step, self._own(lane)

    def step(self, state: SlotState, tokens_N: Tensor) -> tuple[Step, SlotState]:
        """Append one token to every row."""
        return self.extend(state, tokens_N[:, None])

    def extend(self, state: SlotState, tokens_NT: Tensor) -> tuple[Step, SlotState]:
        """Append T tokens to every row."""
        self.batch.pick(state.lane, state.rows)
        (said,) = self.batch.extend([(state.lane, tokens_NT)])
        if isinstance(said, Exception):
            raise said
        return said, _still(state.lane)

    def rewind(self, state: SlotState, tokens: int) -> SlotState:
        """Forget the last `tokens` tokens of every row."""
        self.batch.pick(state.lane, state.rows)
        self.batch.rewind(state.lane, tokens)
        return _still(state.lane)

    def _own(self, lane: Slot) -> SlotState:
        self._last = lane
        return _still(lane)


def _still(lane: Any) -> SlotState:
    return SlotState(lane, tuple(range(len(lane.rows))))
