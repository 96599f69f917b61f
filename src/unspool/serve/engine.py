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
from dataclasses import dataclass
from typing import Any

from unspool.decode.sharing.joined_batch import JoinedBatch
from unspool.protocols import StepModel
from unspool.serve.asks import Ask, Round
from unspool.serve.shared_model import GivenUp, SharedModel
from unspool.serve.solo_batch import SoloBatch

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
    return SoloBatch(model) if joining is None else JoinedBatch(model, joining, kept_bytes)


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
            begun = self.batch.begin([ask.prompts for ask in asks.starts])
            for start, found in zip(asks.starts, begun, strict=True):
                start.tell(found)

    def _extend(self, asks: Round) -> None:
        began = time.monotonic()
        for ask in asks.extensions:
            self.batch.pick(ask.lane, ask.rows)
        said = self.batch.extend([(ask.lane, ask.tokens_MT) for ask in asks.extensions])
        for ask, step in zip(asks.extensions, said, strict=True):
            ask.tell(step)
        self.counts.steps += 1
        self.counts.rows += sum(len(ask.rows) for ask in asks.extensions)
        self._last_step = time.monotonic() - began
