"""The model as one request sees it: a StepModel whose calls are queued for the scheduler.

Every decoder runs on it unchanged. A call raises if the request was cancelled or its time is over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from torch import Tensor

from unspool.decode.delegating import DelegatingModel
from unspool.decode.prefix_cache import SlotState
from unspool.interfaces import Step, StepModel
from unspool.serve.api_error import ApiError

if TYPE_CHECKING:
    from unspool.serve.scheduler import Scheduler


class RequestCancelled(ApiError):  # noqa: N818 — not an error
    """The client has disconnected, or the server is closing."""

    def __init__(self, message: str = "the request was cancelled") -> None:
        super().__init__(503, message)


class RequestTimeout(ApiError):  # noqa: N818 — named like the HTTP status
    """The request took longer than the server allows."""

    def __init__(self) -> None:
        no_retry = {"x-should-retry": "false"}
        super().__init__(504, "the request took too long", code="deadline", headers=no_retry)


@dataclass(eq=False)
class ModelCall:
    """A call of the model by one request, and its future result."""

    request: SharedModel
    result: Future[Any] = field(default_factory=Future, init=False)

    def resolve(self, result: Any) -> None:
        """Set the result, or the exception; ignored if the request does not wait any more."""
        with suppress(InvalidStateError):
            if isinstance(result, BaseException):
                self.result.set_exception(result)
            else:
                self.result.set_result(result)


@dataclass(eq=False)
class PrefillCall(ModelCall):
    """Read prompts."""

    prompts: Sequence[Sequence[int]]


@dataclass(eq=False)
class DecodeCall(ModelCall):
    """Append tokens (M, T) to these rows of a slot."""

    slot: Any
    rows: Sequence[int]
    tokens_MT: Tensor


@dataclass(eq=False)
class BatchCall(ModelCall):
    """Any other function of the batch, run for one request alone."""

    work: Callable[[Any], Any]


class SharedModel(DelegatingModel):
    """The model of one request."""

    def __init__(self, scheduler: Scheduler, model: StepModel, deadline: float | None = None) -> None:
        super().__init__(model)
        self._scheduler, self.deadline = scheduler, deadline
        self.cancelled: Exception | None = None
        """If set, raised by the next call."""
        self.slots: list[Any] = []
        self._last_step: Step | None = None

    @property
    def rewindable(self) -> Self | None:
        """This model, if the shared one can rewind."""
        return None if self.model.rewindable is None else self

    @property
    def prompt_reading(self) -> Self | None:
        """This model, if the shared one supports it."""
        return None if self.model.prompt_reading is None else self

    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Step, SlotState]:
        """Read the prompts, batched with those of other requests."""
        step, slot = self._call(PrefillCall(self, [list(prompt) for prompt in prompts]))
        self._last_step = step
        return step, self._own(slot, len(prompts))

    def read_all(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Step, SlotState]:
        """`start`, with the hidden vectors of all prompt tokens."""
        hidden_MD, step, slot = self._call(BatchCall(self, lambda batch: batch.read_all(prompts)))
        return hidden_MD, step, self._own(slot, len(prompts))

    def step(self, state: SlotState, tokens_N: Tensor) -> tuple[Step, SlotState]:
        """Append one token to every row."""
        return self.extend(state, tokens_N[:, None])

    def extend(self, state: SlotState, tokens_NT: Tensor) -> tuple[Step, SlotState]:
        """Append T tokens to every row."""
        step: Step = self._call(DecodeCall(self, state.slot, state.rows, tokens_NT))
        self._last_step = step
        return step, self._renumbered(state)

    def rewind(self, state: SlotState, tokens: int) -> SlotState:
        """Remove the last `tokens` tokens of every row."""

        def remove(batch: Any) -> None:
            batch.select(state.slot, state.rows)
            batch.rewind(state.slot, tokens)

        self._call(BatchCall(self, remove))
        return self._renumbered(state)

    def with_model(self, work: Callable[[Any], Any]) -> Any:
        """Run a function of the underlying model between two steps."""
        return self._call(BatchCall(self, lambda batch: work(batch.model)))

    @property
    def has_failed(self) -> bool:
        """Whether the last step contained NaN: then an error is not the fault of the request."""
        return self._last_step is not None and bool(self._last_step.logp_NV.isnan().any())

    def cancel(self, reason: Exception) -> None:
        """Make the waiting call, or else the next one, raise the reason."""
        self.cancelled = reason
        self._scheduler.withdraw(self)

    def close(self) -> None:
        """End the request: its rows are removed before the next step."""
        for slot in self.slots:
            self._scheduler.batch.release(slot)
            slot.is_open = False
        self.slots.clear()
        self._scheduler.close_request(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, call: ModelCall) -> Any:
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise RequestTimeout
        if self.cancelled is not None:
            raise self.cancelled
        self._scheduler.submit(call)
        remaining = None if self.deadline is None else self.deadline - time.monotonic()
        try:
            return call.result.result(remaining)
        except TimeoutError:
            self._scheduler.withdraw(self)
            raise RequestTimeout from None

    def _own(self, slot: Any, rows: int) -> SlotState:
        self.slots.append(slot)
        return SlotState(slot, tuple(range(rows)))

    @staticmethod
    def _renumbered(state: SlotState) -> SlotState:
        return SlotState(state.slot, tuple(range(len(state.rows))))
