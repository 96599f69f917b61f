"""Run a request in a worker thread and send its response: one JSON object, or server-sent events."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Self

from fastapi import Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from unspool.decode.output import Piece
from unspool.serve.api_error import ApiError, as_api_error
from unspool.serve.generation import Work
from unspool.serve.metrics import Metrics, RequestRecord
from unspool.serve.response_builders import CompletionBuilder
from unspool.serve.scheduler import Scheduler
from unspool.serve.shared_model import RequestCancelled, RequestTimeout, SharedModel
from unspool.serve.worker_pool import WorkerPool

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
        if isinstance(event, BaseException):
            raise event
        return event

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
            self._send(error)
        except (ValueError, TypeError, ModuleNotFoundError) as error:  # such as a TopK above the vocabulary
            has_failed = self._model is not None and self._model.has_failed
            code = "model_failed" if has_failed else None
            self._send(ApiError(500 if has_failed else 400, str(error), code=code))
        except Exception as error:
            log.info("a request failed", exc_info=True)
            self._send(error)


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
