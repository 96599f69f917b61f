"""The model as one request sees it: a StepModel whose calls are queued for the scheduler.

Every decoder runs on it unchanged. A call raises if the request was cancelled or its time is over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from unspool.decode.combine.lockstep import DelegatingModel
from unspool.decode.prefill import Prefill
from unspool.decode.prefix_cache import SlotState
from unspool.interfaces import Step, StepModel
from unspool.serve.api_error import ApiError

if TYPE_CHECKING:
    from unspool.serve.scheduler import Scheduler

PREFILL_CHUNK = 128
"""Tokens that a request may read in one model call, while others wait (compiled engine)."""


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
    """Read prompts, in chunks."""

    prefill: Prefill


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

    def __init__(
        self, scheduler: Scheduler, model: StepModel, deadline: float | None = None, owner: str = ""
    ) -> None:
        super().__init__(model)
        self._scheduler, self.deadline, self.owner = scheduler, deadline, owner
        self.cancelled: Exception | None = None
        """If set, raised by the next call."""
        self.slots: list[Any] = []
        self.cached_tokens = 0
        """Prompt tokens that were found in the prefix cache."""
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
        prefill = Prefill(prompts, self.owner)
        step, slot = self._call(PrefillCall(self, prefill))
        self.cached_tokens += sum(prompt.shared for prompt in prefill.prompts)
        self._last_step = step
        return step, self._own(slot, len(prompts))

    def read_all(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Step, SlotState]:
        """`start`, with the hidden vectors of all prompt tokens."""
        if len(prompts) == 1 and self.rewindable is not None:
            return self._read_all_in_chunks(prompts[0])
        hidden_MD, step, slot = self._call(BatchCall(self, lambda batch: batch.read_all(prompts)))
        return hidden_MD, step, self._own(slot, len(prompts))

    def _read_all_in_chunks(self, prompt: Sequence[int]) -> tuple[Tensor, Step, SlotState]:
        first = [prompt[:PREFILL_CHUNK]]
        hidden_MD, step, slot = self._call(BatchCall(self, lambda batch: batch.read_all(first)))
        parts, state = [hidden_MD], self._own(slot, 1)
        for begin in range(PREFILL_CHUNK, len(prompt), PREFILL_CHUNK):
            read, state = self.extend(state, torch.tensor([prompt[begin : begin + PREFILL_CHUNK]]))
            assert read.hidden_ND is not None
            parts.append(read.hidden_ND)
            step = read.map(lambda part_M: part_M[-1:])
        return torch.cat(parts), step, state

    def step(self, state: SlotState, tokens_N: Tensor) -> tuple[Step, SlotState]:
        """Append one token to every row."""
        return self.extend(state, tokens_N[:, None])

    def extend(self, state: SlotState, tokens_NT: Tensor) -> tuple[Step, SlotState]:
        """Append T tokens to every row, in chunks."""
        width, steps = max(1, PREFILL_CHUNK // max(1, len(state.rows))), list[Step]()
        for part_NT in torch.split(tokens_NT, width, dim=1):
            steps.append(self._call(DecodeCall(self, state.slot, state.rows, part_NT)))
            state = self._renumbered(state)
        self._last_step = steps[-1]
        return _concatenate_tokens(steps, len(tokens_NT)), state

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

    @contextmanager
    def paused(self) -> Iterator[None]:
        """While the client reads slowly: other requests do not wait for the next call of this one."""
        self._scheduler.close_request(self)
        try:
            yield
        finally:
            self._scheduler.reopen_request(self)

    def close(self) -> None:
        """End the request: its rows are removed before the next step."""
        self.release_slots()
        self._scheduler.close_request(self)

    def release_slots(self) -> None:
        """Remove the rows of all states before the next step."""
        for slot in self.slots:
            self._scheduler.batch.release(slot)
            slot.is_open = False
        self.slots.clear()

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


def _concatenate_tokens(steps: Sequence[Step], rows: int) -> Step:
    """The Step of N rows and the tokens of all steps."""
    if len(steps) == 1:
        return steps[0]
    parts: dict[str, Tensor | None] = {}
    for name in ("logp_NV", "hidden_ND", "log_norm_N"):
        values = [getattr(step, name) for step in steps]
        views = [value.view(rows, -1, *value.shape[1:]) for value in values if value is not None]
        parts[name] = torch.cat(views, dim=1).flatten(0, 1) if len(views) == len(steps) else None
    return Step(**parts)  # type: ignore[arg-type]
