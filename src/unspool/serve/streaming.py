"""Run a request in a worker thread and send its response: one JSON object, or server-sent events.

Concurrent and queued requests are limited; beyond that the server replies 429 with Retry-After.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import threading
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from fastapi import Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from unspool.decode.output import Piece
from unspool.serve.api_error import ApiError, as_api_error
from unspool.serve.generation import Work
from unspool.serve.metrics import Metrics, RequestRecord
from unspool.serve.response_builders import CompletionBuilder
from unspool.serve.scheduler import RequestCancelled, RequestTimeout, Scheduler, SharedModel


@dataclass(eq=False)
class Ticket:
    """The place of a request in the queue."""

    work: Callable[[], None] | None
    """None after the request has left the pool: most work refers to its ticket, which makes a cycle."""
    owner: str = ""


class WorkerPool:
    """`slots` threads that run requests, and a queue of at most `queue` waiting ones.

    If `per_owner` is not None, each owner (API key) has at most so many requests, waiting ones included.
    """

    def __init__(self, slots: int = 32, queue: int = 128, per_owner: int | None = None) -> None:
        self.slots, self.queue, self.per_owner = slots, queue, per_owner
        self._change = threading.Condition()
        self._waiting: deque[Ticket] = deque()
        self._owners: Counter[str] = Counter()
        self._threads: list[threading.Thread] = []
        self.running = 0
        self.is_closed = False
        """Whether new requests are refused, because the server is closing."""
        self._mean_seconds = 1.0
        """Moving average of the time per request."""

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        return self.running + len(self._waiting) >= self.slots + self.queue

    def submit(self, work: Callable[[], None], owner: str = "") -> Ticket:
        """Run the work when a slot is free; raises an ApiError if the queue is full."""
        with self._change:
            if self.is_closed:
                raise ApiError(503, "the server is closing")
            if self.is_full:
                raise self._refusal("the queue is full", "queue_full")
            if self.per_owner is not None and self._owners[owner] >= self.per_owner:
                message = f"this API key has {self.per_owner} requests already, which is its limit"
                raise self._refusal(message, "key_limit")
            ticket = Ticket(work, owner)
            self._waiting.append(ticket)
            self._owners[owner] += 1
            if self.running + len(self._waiting) > len(self._threads) < self.slots:
                thread = threading.Thread(target=self._work, name="unspool-request", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._change.notify()
        return ticket

    def withdraw(self, ticket: Ticket) -> bool:
        """Remove a request from the queue; False if it has left the queue already."""
        with self._change:
            if ticket not in self._waiting:
                return False
            self._waiting.remove(ticket)
            self._leave(ticket)
            return True

    def close(self, seconds: float | None = None) -> None:
        """Wait until all requests are finished, or for some seconds."""
        with self._change:
            self.is_closed = True
            self._change.notify_all()
        end = None if seconds is None else time.monotonic() + seconds
        for thread in self._threads:
            thread.join(None if end is None else max(0.0, end - time.monotonic()))

    def _refusal(self, message: str, code: str) -> ApiError:
        ahead = (self.running + len(self._waiting)) / self.slots
        seconds = max(1, min(60, math.ceil(ahead * self._mean_seconds)))
        headers = {"Retry-After": str(seconds)}
        return ApiError(429, f"{message}: try again in {seconds} s", code=code, headers=headers)

    def _work(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._waiting or self.is_closed)
                if not self._waiting:
                    return
                ticket = self._waiting.popleft()
                self.running += 1
            began = time.monotonic()
            try:
                assert ticket.work is not None
                ticket.work()
            finally:
                with self._change:
                    self.running -= 1
                    self._leave(ticket)
                    self._mean_seconds += 0.1 * (time.monotonic() - began - self._mean_seconds)
            del ticket  # it holds the body of the request

    def _leave(self, ticket: Ticket) -> None:
        ticket.work = None
        self._owners[ticket.owner] -= 1
        if not self._owners[ticket.owner]:
            del self._owners[ticket.owner]


log = logging.getLogger("unspool.serve")
MAX_EVENTS = 256
"""Pieces of text that wait for a client before its request pauses."""


class ModelTask:
    """Runs `prepare()(model, emit)` in a worker thread; iterating yields in the event loop what it emits.

    `prepare` checks the request, renders its prompt and compiles its grammar; other requests do not wait for
    it. The thread waits if the client reads slowly: at most `MAX_EVENTS` events are kept for it.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        pool: WorkerPool,
        prepare: Callable[[], Work],
        seconds: float,
        record: RequestRecord | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[Any] = asyncio.Queue()
        self._room = threading.Semaphore(MAX_EVENTS)
        self._scheduler, self._pool, self._prepare = scheduler, pool, prepare
        self._record = record or RequestRecord()
        self._deadline = time.monotonic() + seconds
        self._lock, self._is_cancelled = threading.Lock(), False
        self._model: SharedModel | None = None
        self._ticket = pool.submit(self._run, self._record.owner)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        event = await self._events.get()
        self._room.release()
        try:
            if isinstance(event, BaseException):
                raise event
            return event
        finally:
            del event  # its traceback refers to this frame

    def cancel(self) -> None:
        """End the work at its next model call, and remove its rows from the batch, or it from the queue."""
        with self._lock:
            self._is_cancelled, model = True, self._model
        if model is not None:
            model.cancel(RequestCancelled())
        elif self._pool.withdraw(self._ticket):
            self._send(RequestCancelled())
        self._room.release()  # wake a thread that waits for a slow client

    def _emit(self, event: Any) -> None:
        assert self._model is not None
        if not self._room.acquire(blocking=False):
            with self._model.paused():
                has_room = self._room.acquire(timeout=max(0.0, self._deadline - time.monotonic()))
            if not has_room:
                raise RequestTimeout
            if self._is_cancelled:
                raise RequestCancelled
        self._send(event)

    def _send(self, event: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    def _run(self) -> None:
        self._record.times["queue"] = time.monotonic() - self._record.began
        try:
            if self._is_cancelled:
                raise RequestCancelled
            work = self._prepare()
            with self._lock:
                if self._is_cancelled:
                    raise RequestCancelled
                self._model = self._scheduler.open_request(self._deadline, self._record.owner)
            with self._model:
                work(self._model, self._emit)
                self._record.cached_tokens = self._model.cached_tokens
            self._send(StopAsyncIteration())
        except ApiError as error:
            self._send(error.with_traceback(None))  # its frames hold the model, which may hold the error
        except (ValueError, TypeError, ModuleNotFoundError) as error:  # such as a TopK above the vocabulary
            has_failed = self._model is not None and self._model.has_failed
            code = "model_failed" if has_failed else None
            self._send(ApiError(500 if has_failed else 400, str(error), code=code))
        except Exception as error:
            log.info("a request failed", exc_info=True)
            self._send(error)
        finally:
            with self._lock:
                self._model = None  # it holds the log-probabilities of the whole last batch


@asynccontextmanager
async def cancel_on_disconnect(task: ModelTask, request: Request) -> AsyncIterator[None]:
    """Cancel the task if the client disconnects or an exception is raised."""

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        task.cancel()

    watcher = asyncio.create_task(watch())
    try:
        yield
    except BaseException:
        task.cancel()
        raise
    finally:
        watcher.cancel()


async def respond(
    builder: CompletionBuilder, task: ModelTask, request: Request, metrics: Metrics, record: RequestRecord
) -> Response:
    """Send the response: complete at the end, or streamed in chunks."""
    count = partial(_count, metrics, record)
    async with cancel_on_disconnect(task, request):
        builder.record = record
        builder.start(await anext(task))
        record.prompt_tokens = builder.usage()["prompt_tokens"]
        metrics.observe("queue_seconds", record.times["queue"], model=record.model)
        if builder.body.stream:  # StreamingResponse notices a disconnect itself
            events = _events(builder, task, count)
            return StreamingResponse(events, media_type="text/event-stream", headers=STREAM_HEADERS)
        try:
            async for piece in task:
                count(builder, piece)
                builder.add(piece)
        except Exception as error:
            raise as_api_error(error, started=True) from error
    return JSONResponse(builder.response())


STREAM_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}
"""A proxy passes every event on at once."""


async def _events(
    builder: CompletionBuilder, task: ModelTask, count: Callable[[CompletionBuilder, Piece], None]
) -> AsyncIterator[bytes]:
    try:
        for record in builder.opening():
            yield _event(record)
        async for piece in task:
            count(builder, piece)
            for record in builder.chunks(piece):
                yield _event(record)
        for record in builder.closing():
            yield _event(record)
        yield builder.end
    except Exception as error:
        yield _event(builder.failed(as_api_error(error, started=True)))
    finally:
        task.cancel()


def _count(metrics: Metrics, record: RequestRecord, builder: CompletionBuilder, piece: Piece) -> None:
    builder.new_tokens += len(piece.tokens)
    if piece.tokens:
        record.count_tokens(metrics, (piece.request, piece.sample), len(piece.tokens))


def _event(record: Mapping[str, Any]) -> bytes:
    """A server-sent event; those of /v1/responses have names."""
    name = f"event: {record['type']}\n".encode() if "type" in record else b""
    return name + b"data: " + json.dumps(record, ensure_ascii=False, allow_nan=False).encode() + b"\n\n"
