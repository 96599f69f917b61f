"""Run a request in a worker thread and send its response: one JSON object, or server-sent events."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Self

from fastapi import Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from unspool.decode.hypothesis import Ranked
from unspool.decode.output import Piece
from unspool.decode.run import Run
from unspool.decode.score import Score, score
from unspool.interfaces import Decoder, StepModel
from unspool.serve.api_error import ApiError, as_api_error, error_record
from unspool.serve.guard import Metrics
from unspool.serve.requests import Limits, check_decoder
from unspool.serve.responses import CompletionBuilder, StartedGeneration
from unspool.serve.scheduler import Scheduler
from unspool.serve.shared_model import RequestCancelled, RequestTimeout, SharedModel
from unspool.serve.worker_pool import WorkerPool

Emit = Callable[[Any], None]
log = logging.getLogger("unspool.serve")
MAX_EVENTS = 256
"""Pieces of text that wait for a client before its request pauses."""


def generate(
    model: StepModel,
    emit: Emit,
    *,
    prompts: Any,
    decoder: Decoder,
    options: Mapping[str, Any],
    limits: Limits,
    score_prompts: int | None = None,
) -> None:
    """Emit a StartedGeneration, and then every piece of text.

    `options` are those of `us.generate`. If `score_prompts` is not None, the prompts are scored, with this
    number of alternatives per token.
    """
    check_decoder(decoder, limits)
    new = options["max_new_tokens"]
    run = Run(model, prompts, decoder, **{**options, "max_new_tokens": max(1, min(new, limits.new_tokens))})
    for prompt in run.job.prompts:
        if len(prompt) > limits.prompt_tokens:
            raise ValueError(
                f"the prompt has {len(prompt)} tokens, but this server allows {limits.prompt_tokens}"
            )
    pieces = run.pieces()
    scored: list[Piece] = []
    if score_prompts is not None:
        scored = [score_prompt(model, ids, score_prompts) for ids in run.job.prompts]
    emit(StartedGeneration(run.job, scored))
    if new > 0:
        for piece in pieces:
            emit(piece)


def score_prompt(model: StepModel, ids: Sequence[int], count: int) -> Piece:
    """A prompt as a piece: log p of each token after the first, with the most probable alternatives."""
    if model.is_encoder_decoder:
        raise ValueError(
            "echo with logprobs needs a language model: an encoder–decoder does not score its source"
        )
    scored = score(model, ids[:1], ids[1:], alternatives=count) if len(ids) > 1 else Score((), ())
    logps = (float("nan"), *scored.logps)
    ranked = (Ranked((), ()), *(Ranked(best, best) for best in scored.ranked))
    text = "" if model.tokenizer is None else model.tokenizer.decode(ids)
    return Piece(text, tuple(ids), 0, 0, None, logps, logps, ranked)


class ModelTask:
    """Runs `work(model, emit)` in a worker thread; iterating yields in the event loop what it emits.

    The thread waits if the client reads slowly: at most `MAX_EVENTS` events are kept for it.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        pool: WorkerPool,
        work: Callable[[SharedModel, Emit], None],
        seconds: float,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[Any] = asyncio.Queue()
        self._room = threading.Semaphore(MAX_EVENTS)
        self._scheduler, self._pool, self._function = scheduler, pool, work
        self._deadline = time.monotonic() + seconds
        self._lock, self._is_cancelled = threading.Lock(), False
        self._model: SharedModel | None = None
        self._ticket = pool.submit(self._run)

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
        with self._lock:
            if self._is_cancelled:
                self._send(RequestCancelled())
                return
            self._model = model = self._scheduler.open_request(self._deadline)
        with model:
            try:
                self._function(model, self._emit)
                self._send(StopAsyncIteration())
            except ApiError as error:
                self._send(error)
            except (ValueError, TypeError) as error:  # for example a TopK larger than the vocabulary
                code = "model_failed" if model.has_failed else None
                self._send(ApiError(500 if model.has_failed else 400, str(error), code=code))
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
    builder: CompletionBuilder, task: ModelTask, request: Request, metrics: Metrics
) -> Response:
    """Send the response: complete at the end, or streamed in chunks."""
    count = partial(_count, metrics, time.monotonic())
    async with cancel_on_disconnect(task, request):
        builder.start(await anext(task))
        if builder.body.stream:  # StreamingResponse notices a disconnect itself
            return StreamingResponse(_events(builder, task, count), media_type="text/event-stream")
        try:
            async for piece in task:
                count(builder, piece)
                builder.add(piece)
        except Exception as error:
            raise as_api_error(error, started=True) from error
    return JSONResponse(builder.response())


async def _events(
    builder: CompletionBuilder, task: ModelTask, count: Callable[[CompletionBuilder, Piece], None]
) -> AsyncIterator[bytes]:
    try:
        for chunk in builder.echo_chunks():
            yield _event(chunk)
        async for piece in task:
            count(builder, piece)
            yield _event(builder.chunk(piece))
        if builder.body.stream_options is not None and builder.body.stream_options.include_usage:
            yield _event(builder.usage_chunk())
        yield b"data: [DONE]\n\n"
    except Exception as error:
        yield _event(error_record(as_api_error(error, started=True)))
    finally:
        task.cancel()


def _count(metrics: Metrics, began: float, builder: CompletionBuilder, piece: Piece) -> None:
    if builder.new_tokens == 0 and piece.tokens:
        metrics.add("first_tokens")
        metrics.add("first_token_seconds", time.monotonic() - began)
    builder.new_tokens += len(piece.tokens)
    metrics.add("generated_tokens", len(piece.tokens))


def _event(record: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(record, ensure_ascii=False, allow_nan=False).encode() + b"\n\n"
