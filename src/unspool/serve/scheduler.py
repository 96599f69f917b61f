"""Continuous batching: one model that many requests share.

    each request:  search(SharedModel, job) in a thread of its own; its `step` waits
    the engine:    gather the rows of all that wait → one step of the model → answer each

Requests join and leave between two steps, each with its own search, seed and limits (Yu et al. 2022, §4.1;
papers.bib: yu2022orca). Compiled steps say the same of a row, to the bit, alone and in any batch: a text does
not depend on who else is served.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor

from unspool.decode.batching import BatchScheduler, Prompts
from unspool.interfaces import Step, StepModel
from unspool.serve.shared_model import Ask, GivenUp, Round, SharedModel

# What `JoinedBatch` does, for models whose states cannot be joined: each asker is read by itself.


@dataclass(eq=False)
class SoloLane:
    """One asker's own state."""

    state: Any
    size: int
    is_open: bool = True
    """False from when its asker has left."""


class SoloBatch:
    """A state for every asker."""

    def __init__(self, model: StepModel) -> None:
        self.model = model
        self._lanes: WeakSet[SoloLane] = WeakSet()
        self.read_tokens = self.shared_tokens = 0
        """Of prompts; what they have in common is read again."""

    @property
    def rows(self) -> int:
        """How many there are of lanes that somebody holds."""
        return sum(lane.size for lane in self._lanes if lane.is_open)

    def prefill(self, asked: Sequence[Prompts]) -> list[tuple[Step, SoloLane] | Exception]:
        """Read the prompts of each asker; what went wrong, where it did."""
        found: list[tuple[Step, SoloLane] | Exception] = []
        for prompts in asked:
            try:
                step, state = self.model.start(prompts)
            except Exception as error:
                found.append(error)
            else:
                found.append((step, self._lane(state, prompts)))
        return found

    def read_all(self, prompts: Prompts) -> tuple[Tensor, Step, SoloLane]:
        """`PromptReading.read_all`."""
        assert self.model.prompt_reading is not None
        hidden_NTD, step, state = self.model.prompt_reading.read_all(prompts)
        return hidden_NTD, step, self._lane(state, prompts)

    def select(self, lane: SoloLane, rows: Sequence[int]) -> None:
        """Reorder, repeat or drop the rows of a lane."""
        if list(rows) != list(range(lane.size)):
            lane.state, lane.size = lane.state.select(torch.tensor(rows)), len(rows)

    def extend(self, asked: Sequence[tuple[SoloLane, Tensor]]) -> list[Step | Exception]:
        """Append tokens (M, T) to each of the lanes."""
        found: list[Step | Exception] = []
        for lane, tokens_MT in asked:
            try:
                if tokens_MT.shape[1] == 1:
                    step, lane.state = self.model.step(lane.state, tokens_MT[:, 0])
                else:
                    assert self.model.rewindable is not None
                    step, lane.state = self.model.rewindable.extend(lane.state, tokens_MT)
            except Exception as error:
                found.append(error)
            else:
                found.append(step)
        return found

    def rewind(self, lane: SoloLane, tokens: int) -> None:
        """Forget the last tokens of a lane's rows."""
        assert self.model.rewindable is not None
        lane.state = self.model.rewindable.rewind(lane.state, tokens)

    def release(self, lane: SoloLane) -> None:
        """Nothing is kept of those who have left."""

    def sweep(self) -> None:
        """Let go of the states of those who have left."""
        for lane in self._lanes:
            if not lane.is_open:
                lane.state = None

    def compact(self) -> None:
        """Hold no more memory than is needed."""
        self.sweep()

    def _lane(self, state: Any, prompts: Prompts) -> SoloLane:
        lane = SoloLane(state, len(prompts))
        self.read_tokens += sum(map(len, prompts))
        self._lanes.add(lane)
        return lane


PROMPT_TOKENS = 512
"""Tokens of prompts that are read between two steps, unless one asker's have more."""
PATIENCE = 0.5
"""How long the engine waits for those who are still choosing a token, as a share of the last step's time."""


@dataclass
class Counts:
    """What an engine has done."""

    steps: int = 0
    """Calls of the model that appended tokens."""
    rows: int = 0
    """Rows of all these calls."""


def batch_of(model: StepModel, kept_bytes: int) -> Any:
    """One state for all askers where the model's can be joined, else one for each."""
    joining = model.joining
    return SoloBatch(model) if joining is None else BatchScheduler(model, joining, kept_bytes)


class Engine:
    """A model, and the thread that alone calls it."""

    def __init__(self, model: StepModel, kept_bytes: int = 0) -> None:
        self.model, self.batch, self.counts = model, batch_of(model, kept_bytes), Counts()
        self._waiting = Round()
        self._askers: set[SharedModel] = set()
        self._change = threading.Condition()
        self._closed = False
        self._last_step = 0.0
        self._thread = threading.Thread(target=self._run, name="unspool-engine", daemon=True)
        self._thread.start()

    def open(self, deadline: float | None = None) -> SharedModel:
        """The model for one request, until `close`; `deadline` is a time of `time.monotonic()`."""
        asker = SharedModel(self, self.model, deadline)
        with self._change:
            self._askers.add(asker)
        return asker

    def put(self, ask: Ask) -> None:
        """Take a question; its answer comes after some step."""
        with self._change:
            if not self._closed:
                ask.enter(self._waiting)
                self._change.notify()
                return
        ask.tell(GivenUp("the engine is closed"))

    def withdraw(self, asker: SharedModel) -> None:
        """Answer what this asker waits for by why it was stopped."""
        with self._change:
            mine, self._waiting = self._waiting.of(asker), self._waiting.without(asker)
        for ask in mine:
            ask.tell(asker.stopped or GivenUp())

    def leave(self, asker: SharedModel) -> None:
        """This asker is done."""
        with self._change:
            self._askers.discard(asker)
            self._change.notify()

    def close(self) -> None:
        """Stop the thread; whoever still waits is told."""
        with self._change:
            self._closed = True
            left, self._waiting = self._waiting, Round()
            self._change.notify()
        for ask in left:
            ask.tell(GivenUp("the engine is closed"))
        self._thread.join()

    def _run(self) -> None:
        while (asks := self._gather()) is not None:
            try:
                self._answer(asks)
            except Exception as error:  # told to those whose round it was; the next one comes
                for ask in asks:
                    ask.tell(error)
            del asks  # whoever leaves meanwhile takes his lane along

    def _gather(self) -> Round | None:
        """What is answered next; None where nothing will be any more."""
        with self._change:
            while not self._waiting and not self._closed:
                if not self._askers:
                    self.batch.compact()
                self._change.wait()
            self._change.wait_for(self._nobody_is_missing, timeout=PATIENCE * self._last_step)
            if self._closed:
                return None
            now, self._waiting = self._waiting.split(PROMPT_TOKENS)
            return now

    def _nobody_is_missing(self) -> bool:
        return self._closed or len({ask.asker for ask in self._waiting}) >= len(self._askers)

    def _answer(self, asks: Round) -> None:
        for ask in asks.calls:
            ask.tell(ask.done(self.batch))
        if asks.extensions:
            self._extend(asks)
        if asks.starts:
            begun = self.batch.prefill([ask.prompts for ask in asks.starts])
            for start, found in zip(asks.starts, begun, strict=True):
                start.tell(found)

    def _extend(self, asks: Round) -> None:
        began = time.monotonic()
        for ask in asks.extensions:
            self.batch.select(ask.lane, ask.rows)
        said = self.batch.extend([(ask.lane, ask.tokens_MT) for ask in asks.extensions])
        for ask, step in zip(asks.extensions, said, strict=True):
            ask.tell(step)
        self.counts.steps += 1
        self.counts.rows += sum(len(ask.rows) for ask in asks.extensions)
        self._last_step = time.monotonic() - began
