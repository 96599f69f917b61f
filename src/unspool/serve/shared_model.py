"""What one request sees of a model that many share: a StepModel whose `start` and `step` wait for the engine.

Every search runs on it unchanged. It ends by an error where the request was given up or its time is over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from unspool.decode.delegating import DelegatingModel
from unspool.decode.prefix_cache import SlotState
from unspool.interfaces import Step, StepModel
from unspool.serve.api_error import ApiError

if TYPE_CHECKING:
    from unspool.serve.scheduler import Engine

# What requests ask of the engine, where each waits for its answer, and which are answered together.


@dataclass(eq=False)
class Ask:
    """One request's question."""

    asker: SharedModel
    answer: Future[Any] = field(default_factory=Future, init=False)

    def enter(self, waiting: Round) -> None:
        """Go where the questions of its kind wait."""
        raise NotImplementedError

    def tell(self, found: Any) -> None:
        """Answer it, with an error where that was found; whoever has stopped waiting hears nothing."""
        with suppress(InvalidStateError):
            if isinstance(found, BaseException):
                self.answer.set_exception(found)
            else:
                self.answer.set_result(found)


@dataclass(eq=False)
class Start(Ask):
    """Read prompts."""

    prompts: Sequence[Sequence[int]]

    def enter(self, waiting: Round) -> None:
        """Beside other prompts."""
        waiting.starts.append(self)

    @property
    def tokens(self) -> int:
        """Of all prompts together."""
        return sum(map(len, self.prompts))


@dataclass(eq=False)
class Extension(Ask):
    """Append tokens (M, T) to these rows of a lane."""

    lane: Any
    rows: Sequence[int]
    tokens_MT: Tensor

    def enter(self, waiting: Round) -> None:
        """Beside other extensions."""
        waiting.extensions.append(self)


@dataclass(eq=False)
class Call(Ask):
    """Whatever else is to be done with the batch, and is done for this asker alone."""

    work: Callable[[Any], Any]

    def enter(self, waiting: Round) -> None:
        """Beside other calls."""
        waiting.calls.append(self)

    def done(self, batch: Any) -> Any:
        """What it gives, or the error that came of it."""
        try:
            return self.work(batch)
        except Exception as error:
            return error


@dataclass
class Round:
    """Questions that wait, by what can be done for many at once."""

    calls: list[Call] = field(default_factory=list)
    extensions: list[Extension] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)

    def __iter__(self) -> Iterator[Ask]:
        yield from self.calls
        yield from self.extensions
        yield from self.starts

    def __bool__(self) -> bool:
        return bool(self.calls or self.extensions or self.starts)

    def of(self, asker: SharedModel) -> list[Ask]:
        """What this one asks."""
        return [ask for ask in self if ask.asker is asker]

    def without(self, asker: SharedModel) -> Round:
        """What all the others ask."""
        others = Round()
        for ask in self:
            if ask.asker is not asker:
                ask.enter(others)
        return others

    def split(self, most: int) -> tuple[Round, Round]:
        """What is answered now, with `most` tokens of prompts or one asker's prompts, and what waits."""
        now = tokens = 0
        while now < len(self.starts) and (now == 0 or tokens + self.starts[now].tokens <= most):
            tokens += self.starts[now].tokens
            now += 1
        return Round(self.calls, self.extensions, self.starts[:now]), Round(starts=self.starts[now:])


class GivenUp(Exception):  # noqa: N818 — nothing went wrong
    """Nobody waits for this request any more."""


class DeadlinePassed(ApiError):  # noqa: N818 — named after what is the case
    """The time that a request had is over."""

    def __init__(self) -> None:
        no_retry = {"x-should-retry": "false"}
        super().__init__(504, "the time for this request is over", code="deadline", headers=no_retry)


class SharedModel(DelegatingModel):
    """One request's model."""

    def __init__(self, engine: Engine, model: StepModel, deadline: float | None = None) -> None:
        super().__init__(model)
        self._engine, self.deadline = engine, deadline
        self.stopped: Exception | None = None
        """What ends it at its next step."""
        self.lanes: list[Any] = []
        self._said: Step | None = None

    @property
    def rewindable(self) -> Self | None:
        """Itself, where the model can rewind."""
        return None if self.model.rewindable is None else self

    @property
    def prompt_reading(self) -> Self | None:
        """Itself, where the model can tell."""
        return None if self.model.prompt_reading is None else self

    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Step, SlotState]:
        """Read the prompts, beside whatever others ask."""
        step, lane = self._ask(Start(self, [list(prompt) for prompt in prompts]))
        self._said = step
        return step, self._own(lane, len(prompts))

    def read_all(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Step, SlotState]:
        """`start`, with the hidden vectors of the prompts before it."""
        hidden_NTD, step, lane = self._ask(Call(self, lambda batch: batch.read_all(prompts)))
        return hidden_NTD, step, self._own(lane, len(prompts))

    def step(self, state: SlotState, tokens_N: Tensor) -> tuple[Step, SlotState]:
        """Append one token to every row."""
        return self.extend(state, tokens_N[:, None])

    def extend(self, state: SlotState, tokens_NT: Tensor) -> tuple[Step, SlotState]:
        """Append T tokens to every row."""
        step: Step = self._ask(Extension(self, state.slot, state.rows, tokens_NT))
        self._said = step
        return step, self._still(state)

    def rewind(self, state: SlotState, tokens: int) -> SlotState:
        """Forget the last `tokens` tokens of every row."""

        def forget(batch: Any) -> None:
            batch.select(state.slot, state.rows)
            batch.rewind(state.slot, tokens)

        self._ask(Call(self, forget))
        return self._still(state)

    def with_model(self, work: Callable[[Any], Any]) -> Any:
        """What a function of the model itself gives, between two steps of all who share it."""
        return self._ask(Call(self, lambda batch: work(batch.model)))

    @property
    def failed(self) -> bool:
        """Whether the last thing that the model said was no number: that is no fault of the request."""
        return self._said is not None and bool(self._said.logp_NV.isnan().any())

    def stop(self, why: Exception) -> None:
        """End this request: at once where it waits, at its next step where it does not."""
        self.stopped = why
        self._engine.withdraw(self)

    def close(self) -> None:
        """Leave: its rows go before the next step of the others."""
        for lane in self.lanes:
            self._engine.batch.release(lane)
            lane.is_open = False
        self.lanes.clear()
        self._engine.leave(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, ask: Ask) -> Any:
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise DeadlinePassed
        if self.stopped is not None:
            raise self.stopped
        self._engine.put(ask)
        left = None if self.deadline is None else self.deadline - time.monotonic()
        try:
            return ask.answer.result(left)
        except TimeoutError:
            self._engine.withdraw(self)
            raise DeadlinePassed from None

    def _own(self, lane: Any, rows: int) -> SlotState:
        self.lanes.append(lane)
        return SlotState(lane, tuple(range(rows)))

    @staticmethod
    def _still(state: SlotState) -> SlotState:
        return SlotState(state.slot, tuple(range(len(state.rows))))


def probe(model: SharedModel) -> None:
    """Have one token read: an engine that hangs does not answer."""
    text, sources = model.tokenizer, model.is_encoder_decoder
    first = None if text is None or sources else text.bos_id
    step, _ = model.start([[first or 0]])
    if not torch.isfinite(step.logp_NV).any():
        raise RuntimeError("the model says nothing that is a number")
