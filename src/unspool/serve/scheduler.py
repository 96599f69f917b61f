"""Continuous batching: one thread runs the model calls of all requests together.

    request thread:  decoder(SharedModel, job) runs as usual; each `step` of the SharedModel waits
    scheduler:       take the waiting calls → run them as one batch → resolve each call

Requests join and leave between two steps, each with its own decoder, seed and limits (Yu et al. 2022, §4.1;
papers.bib: yu2022orca). Compiled steps give bit-identical results for a row alone and in any batch, so the
text of a request does not depend on other requests. A call raises if the request was cancelled or its time is
over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar
from weakref import WeakSet

import torch
from torch import Tensor

from unspool.decode.batching import BatchScheduler, SlotModel
from unspool.decode.prefill import Prefill, Prompts, SlotState, first_fitting
from unspool.decode.run import Run
from unspool.decode.search import Greedy, Sample
from unspool.decode.transforms import TopP
from unspool.decode.transforms.grammar import token_bytes
from unspool.interfaces import Step, StepModel
from unspool.serve.api_error import ApiError

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


class SharedModel(SlotModel):
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

    def extend(self, state: SlotState, tokens_NT: Tensor) -> tuple[Step, SlotState]:
        """Append T tokens to every row, in chunks."""
        width, steps = max(1, PREFILL_CHUNK // max(1, len(state.rows))), list[Step]()
        for part_NT in torch.split(tokens_NT, width, dim=1):
            steps.append(self._call(DecodeCall(self, state.slot, state.rows, part_NT)))
            state = self._renumbered(state)
        self._last_step = steps[-1]
        rows = len(tokens_NT)

        def join(parts: list[Tensor]) -> Tensor:
            return torch.cat([part.view(rows, -1, *part.shape[1:]) for part in parts], dim=1).flatten(0, 1)

        return Step.merge(steps, join), state

    def rewind(self, state: SlotState, tokens: int) -> SlotState:
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
        """True if the last step contained NaN: then an error is not the fault of the request."""
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


T = TypeVar("T")
WAIT_SHARE = 0.5
"""How long to wait for requests that are choosing a token, as a share of the last step's time."""
PROBE_SECONDS = 30.0


def _result_or_error(function: Callable[..., T], *args: Any) -> T | Exception:
    try:
        return function(*args)
    except Exception as error:
        return error


@dataclass(eq=False)
class Slot:
    """The state of one request in a `PerRequestBatch`."""

    state: Any
    size: int
    is_open: bool = True


class PerRequestBatch:
    """Fallback for models whose states cannot be batched: every request has its own state."""

    def __init__(self, model: StepModel) -> None:
        self.model = model
        self._slots: WeakSet[Slot] = WeakSet()
        self.read_tokens = self.shared_tokens = 0
        """Prompt tokens that were read, and that were found in the prefix cache (none here)."""

    @property
    def rows(self) -> int:
        return sum(slot.size for slot in self._slots if slot.is_open)

    def advance(self, prefills: Sequence[Prefill], max_tokens: int) -> None:
        """Read the prompts of the first requests, as a whole; an error becomes the result of its request."""

        def start(prompts: Prompts) -> tuple[Step, Slot]:
            step, state = self.model.start(prompts)
            return step, self._new_slot(state, prompts)

        for prefill in first_fitting(prefills, max_tokens):
            prefill.result = _result_or_error(start, prefill.texts)
            if not prefill.is_open:  # cancelled meanwhile
                prefill.close()

    def read_all(self, prompts: Prompts) -> tuple[Tensor, Step, Slot]:
        assert self.model.prompt_reading is not None
        hidden_MD, step, state = self.model.prompt_reading.read_all(prompts)
        return hidden_MD, step, self._new_slot(state, prompts)

    def select(self, slot: Slot, rows: Sequence[int]) -> None:
        if list(rows) != list(range(slot.size)):
            slot.state, slot.size = slot.state.select(torch.tensor(rows)), len(rows)

    def extend(self, calls: Sequence[tuple[Slot, Tensor]]) -> list[Step | Exception]:
        """Append tokens (M, T) to the rows of each slot."""

        def extend(slot: Slot, tokens_MT: Tensor) -> Step:
            if tokens_MT.shape[1] == 1:
                step, slot.state = self.model.step(slot.state, tokens_MT[:, 0])
            else:
                assert self.model.rewindable is not None
                step, slot.state = self.model.rewindable.extend(slot.state, tokens_MT)
            return step

        return [_result_or_error(extend, *call) for call in calls]

    def rewind(self, slot: Slot, tokens: int) -> None:
        assert self.model.rewindable is not None
        slot.state = self.model.rewindable.rewind(slot.state, tokens)

    def release(self, slot: Slot) -> None:
        """Do nothing, because states are not cached."""

    def sweep(self) -> None:
        for slot in self._slots:
            if not slot.is_open:
                slot.state = None

    def compact(self) -> None:
        self.sweep()

    def _new_slot(self, state: Any, prompts: Prompts) -> Slot:
        slot = Slot(state, len(prompts))
        self.read_tokens += sum(map(len, prompts))
        self._slots.add(slot)
        return slot


class Scheduler:
    """A model and the one thread that calls it."""

    def __init__(self, model: StepModel, cache_bytes: int = 0) -> None:
        joining = model.joining
        self.batch: Any = (
            PerRequestBatch(model) if joining is None else BatchScheduler(model, joining, cache_bytes)
        )
        self.model = model
        self.counts = {"steps": 0, "rows": 0}
        """Batched decoding steps, and the rows of all these steps."""
        self._queue: list[ModelCall] = []
        self._requests: set[SharedModel] = set()
        self._change = threading.Condition()
        self._is_closed = False
        self._last_step = 0.0
        self._thread = threading.Thread(target=self._run, name="unspool-scheduler", daemon=True)
        self._thread.start()

    def open_request(self, deadline: float | None = None, owner: str = "") -> SharedModel:
        """The model of a new request, to be closed at its end.

        `deadline` is a time of `time.monotonic()`. Only requests of the same owner share prefixes.
        """
        request = SharedModel(self, self.model, deadline, owner)
        with self._change:
            self._requests.add(request)
        return request

    def probe(self, seconds: float = PROBE_SECONDS) -> None:
        """Raise if the model does not read one token in time."""
        tokenizer = None if self.model.is_encoder_decoder else self.model.tokenizer
        first = None if tokenizer is None else tokenizer.bos_id
        with self.open_request(time.monotonic() + seconds) as model:
            step, _ = model.start([[first or 0]])
        if not torch.isfinite(step.logp_NV).any():
            raise RuntimeError("the model returns no finite log-probability")

    def warm_up(self) -> None:
        """Compile what the first requests would wait for: prefill, decoding, sampling, grammar tables."""
        length = min(PREFILL_CHUNK + 2, (self.model.context or 1000) // 2)
        prompt = [1] * (1 if self.model.is_encoder_decoder else length)
        for decoder in (Greedy(), Sample(TopP(0.9))):
            with self.open_request() as model:
                Run(model, prompt, decoder, max_new_tokens=3, seed=1).outputs()
        if self.model.tokenizer is not None and self.model.eos_ids:
            with suppress(ImportError):  # without llguidance there are no grammars
                tables = token_bytes(self.model.tokenizer, self.model.vocab_size, self.model.eos_ids)
                _ = tables.llguidance_tokenizer

    def submit(self, call: ModelCall) -> None:
        """Queue a model call; its result is set after one of the next steps."""
        with self._change:
            if not self._is_closed:
                self._queue.append(call)
                self._change.notify()
                return
        call.resolve(RequestCancelled("the server is closing"))

    def withdraw(self, request: SharedModel) -> None:
        """Remove the waiting calls of a cancelled request; they raise the reason."""
        with self._change:
            calls = [call for call in self._queue if call.request is request]
            self._queue = [call for call in self._queue if call.request is not request]
        for call in calls:
            if isinstance(call, PrefillCall):
                call.prefill.close()
            call.resolve(request.cancelled or RequestCancelled())

    def reopen_request(self, request: SharedModel) -> None:
        with self._change:
            self._requests.add(request)

    def close_request(self, request: SharedModel) -> None:
        """Forget a request that has finished, or that pauses: the others do not wait for its next call."""
        with self._change:
            self._requests.discard(request)
            self._change.notify()

    def close(self) -> None:
        """Stop the thread; waiting calls raise RequestCancelled."""
        with self._change:
            self._is_closed = True
            remaining, self._queue = self._queue, []
            self._change.notify()
        for call in remaining:
            call.resolve(RequestCancelled("the server is closing"))
        self._thread.join()

    def _run(self) -> None:
        while (calls := self._next_batch()) is not None:
            try:
                self._execute(calls)
            except Exception as error:  # fails the calls of this batch only
                with self._change:
                    self._queue = [call for call in self._queue if call not in calls]
                for call in calls:
                    call.resolve(error)
            del calls  # it would keep the slots of finished requests alive

    def _next_batch(self) -> list[ModelCall] | None:
        """Wait for calls and take those that run next; None after `close`."""
        with self._change:
            while not self._queue and not self._is_closed:
                if not self._requests:
                    self.batch.compact()
                self._change.wait()
            self._change.wait_for(self._all_waiting, timeout=WAIT_SHARE * self._last_step)
            if self._is_closed:
                return None
            calls = list(self._queue)
            self._queue = [call for call in calls if isinstance(call, PrefillCall)]  # until they are complete
            return calls

    def _all_waiting(self) -> bool:
        return self._is_closed or len({call.request for call in self._queue}) >= len(self._requests)

    def _execute(self, calls: Sequence[ModelCall]) -> None:
        for call in calls:
            if isinstance(call, BatchCall):
                call.resolve(_result_or_error(call.work, self.batch))
        if decodes := [call for call in calls if isinstance(call, DecodeCall)]:
            self._decode(decodes)
        if prefills := [call for call in calls if isinstance(call, PrefillCall)]:
            self._prefill(prefills)

    def _prefill(self, calls: Sequence[PrefillCall]) -> None:
        self.batch.advance([call.prefill for call in calls], PREFILL_CHUNK)
        complete = [call for call in calls if call.prefill.result is not None]
        with self._change:
            self._queue = [call for call in self._queue if call not in complete]
        for call in complete:
            call.resolve(call.prefill.result)

    def _decode(self, calls: Sequence[DecodeCall]) -> None:
        began = time.monotonic()
        for call in calls:
            self.batch.select(call.slot, call.rows)
        steps = self.batch.extend([(call.slot, call.tokens_MT) for call in calls])
        for call, step in zip(calls, steps, strict=True):
            call.resolve(step)
        self.counts["steps"] += 1
        self.counts["rows"] += sum(len(call.rows) for call in calls)
        self._last_step = time.monotonic() - began
