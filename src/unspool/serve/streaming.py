"""Run a request in a worker thread and send its response: one JSON object, or server-sent events."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from fastapi import Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from unspool.decode.hypothesis import Job, Ranked
from unspool.decode.output import Piece
from unspool.decode.run import Run
from unspool.interfaces import Decoder, StepModel, TokenizerLike
from unspool.serve.api_error import ApiError, as_api_error, error_record
from unspool.serve.guard import Metrics
from unspool.serve.requests import DecodingFields, Limits, check_decoder
from unspool.serve.responses import FINISH_REASONS, Choice, Endpoint, Envelope, TokenOffsets, usage
from unspool.serve.scheduler import Scheduler
from unspool.serve.shared_model import RequestCancelled, SharedModel
from unspool.serve.worker_pool import WorkerPool

PROMPT_CHUNK = 64
"""Prompt tokens that are scored in one step."""
END = object()
"""Marks the end of the pieces."""
log = logging.getLogger("unspool.serve")


@dataclass(frozen=True)
class GenerationRequest:
    """The arguments of one generation."""

    prompts: Any
    decoder: Decoder
    options: dict[str, Any]
    """Keyword arguments of `us.generate`."""
    score_prompts: int | None = None
    """If not None, score the prompts, with this number of alternatives per token."""


@dataclass(frozen=True)
class StartedGeneration:
    """A generation whose arguments were checked, before its first token."""

    job: Job
    scored: Sequence[Piece]
    """The scored prompts, if requested; log p of the first token is NaN."""


def generate(
    model: StepModel,
    request: GenerationRequest,
    limits: Limits,
    emit: Callable[[StartedGeneration | Piece], None],
) -> None:
    """Emit a StartedGeneration, and then every piece of text."""
    check_decoder(request.decoder, limits)
    new = request.options["max_new_tokens"]
    options = {**request.options, "max_new_tokens": max(1, min(new, limits.new_tokens))}
    run = Run(model, request.prompts, request.decoder, **options)
    for prompt in run.job.prompts:
        if len(prompt) > limits.prompt_tokens:
            raise ValueError(
                f"the prompt has {len(prompt)} tokens, but this server allows {limits.prompt_tokens}"
            )
    pieces = run.pieces()
    count = request.score_prompts
    scored = [] if count is None else [score_prompt(model, ids, count) for ids in run.job.prompts]
    emit(StartedGeneration(run.job, scored))
    if new > 0:
        for piece in pieces:
            emit(piece)


def score_prompt(model: StepModel, ids: Sequence[int], count: int) -> Piece:
    """A prompt as a piece: log p of each token, with the most probable alternatives."""
    step, state = model.start([ids[:1]])
    logps, ranked = [float("nan")], [Ranked((), ())]
    position = 1
    while position < len(ids):
        chunk = (
            list(ids[position : position + PROMPT_CHUNK]) if model.rewindable is not None else [ids[position]]
        )
        rows_TV = step.logp_NV[-1:]
        tokens_1T = torch.tensor([chunk])
        if model.rewindable is None:
            step, state = model.step(state, tokens_1T[:, 0])
        else:
            step, state = model.rewindable.extend(state, tokens_1T)
        rows_TV = torch.cat([rows_TV, step.logp_NV[:-1]])
        logps += rows_TV.gather(1, tokens_1T.T)[:, 0].tolist()
        values_TK, tokens_TK = rows_TV.topk(min(count, rows_TV.shape[1]))
        for tokens, values in zip(tokens_TK.tolist(), values_TK.tolist(), strict=True):
            best = tuple(zip(tokens, values, strict=True))
            ranked.append(Ranked(best, best))
        position += len(chunk)
    text = "" if model.tokenizer is None else model.tokenizer.decode(ids)
    return Piece(text, tuple(ids), 0, 0, None, tuple(logps), tuple(logps), tuple(ranked))


class ResponseBuilder:
    """Builds the response of a request, or its chunks, from pieces of text."""

    def __init__(
        self,
        endpoint: Endpoint,
        body: DecodingFields,
        tokenizer: TokenizerLike | None,
        alternatives: int | None,
        *,
        echo: bool = False,
    ) -> None:
        self.body, self.envelope, self.new_tokens = body, Envelope(endpoint, body.model), 0
        self._endpoint, self._tokenizer, self._alternatives = endpoint, tokenizer, alternatives
        self._echo = echo
        self._choices: dict[tuple[int, int], Choice] = {}
        self._offsets: dict[tuple[int, int], TokenOffsets] = {}
        self._job: Job | None = None

    def start(self, job: Job) -> None:
        """Set the job, before the first piece."""
        self._job = job

    def add(self, piece: Piece) -> None:
        """Collect a piece for the complete response."""
        self._choices.setdefault((piece.request, piece.sample), Choice()).add(piece)

    def response(self, started: StartedGeneration) -> dict[str, Any]:
        """The complete response."""
        choices = []
        for request, prompt in enumerate(started.job.prompts):
            texts = [self._choices[key] for key in sorted(self._choices) if key[0] == request]
            if len(texts) > self.body.n:
                texts = sorted(texts, key=lambda text: -text.mean_logp)[: self.body.n]
            for sample, text in enumerate(texts or [Choice(finish_reason="length")] * self.body.n):
                echoed = self._with_prompt(started, request, prompt, text)
                record = {
                    "index": request * self.body.n + sample,
                    **self._endpoint.choice(echoed),
                    "logprobs": self._logprobs((request, sample), echoed),
                    "finish_reason": FINISH_REASONS[text.finish_reason],
                }
                choices.append(record)
        return self.envelope.response(choices, usage(started.job.prompts, self.new_tokens))

    def echo_chunks(self, started: StartedGeneration) -> list[dict[str, Any]]:
        """Chunks that repeat the prompts, if the request asks for an echo."""
        if not self._echo:
            return []
        chunks = []
        for request, prompt in enumerate(started.job.prompts):
            text = self._with_prompt(started, request, prompt, Choice())
            for sample in range(self.body.n):
                choice = self._delta((request, sample), text.text, text, None)
                chunks.append(self.envelope.chunk([choice]))
        return chunks

    def chunk(self, piece: Piece) -> dict[str, Any]:
        """The chunk of one piece."""
        key = (piece.request, piece.sample)
        return self.envelope.chunk([self._delta(key, piece.text, piece, piece.finish_reason)])

    def _delta(
        self, key: tuple[int, int], text: str, piece: Choice | Piece, finish_reason: str | None
    ) -> dict[str, Any]:
        is_first = key not in self._choices
        self._choices.setdefault(key, Choice())
        return {
            "index": key[0] * self.body.n + key[1],
            **self._endpoint.delta(text, is_first),
            "logprobs": self._logprobs(key, piece),
            "finish_reason": FINISH_REASONS[finish_reason],
        }

    def _logprobs(self, key: tuple[int, int], piece: Choice | Piece) -> dict[str, Any] | None:
        if self._alternatives is None or self._tokenizer is None:
            return None
        if key not in self._offsets:
            self._offsets[key] = self._new_offsets(self._tokenizer, key[0])
        offsets = self._offsets[key](piece.tokens)
        return self._endpoint.logprobs(self._tokenizer, piece, self._alternatives, offsets)

    def _new_offsets(self, tokenizer: TokenizerLike, request: int) -> TokenOffsets:
        """Offsets from the start of an echoed prompt, or else from the end of the prompt."""
        if self._echo or self._job is None or self._job.is_encoder_decoder:
            return TokenOffsets(tokenizer)
        return TokenOffsets(tokenizer, after=self._job.prompts[request][-1])

    def _with_prompt(
        self, started: StartedGeneration, request: int, prompt: Sequence[int], text: Choice
    ) -> Choice:
        if not self._echo:
            return text
        both = Choice(finish_reason=text.finish_reason)
        if started.scored:
            both.add(started.scored[request])
        else:
            both.text = "" if self._tokenizer is None else self._tokenizer.decode(prompt)
        both.text += text.text
        both.tokens += text.tokens
        both.logps += text.logps
        both.ranked += text.ranked
        return both


class GenerationTask:
    """Runs a generation in a worker thread and passes its pieces to the event loop."""

    def __init__(
        self, scheduler: Scheduler, pool: WorkerPool, request: GenerationRequest, limits: Limits
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[Any] = asyncio.Queue()
        self._request, self._limits = request, limits
        self._is_cancelled = False
        self._lock = threading.Lock()
        self._model: SharedModel | None = None
        self._scheduler, self._deadline = scheduler, time.monotonic() + limits.seconds
        pool.submit(self._work)

    async def started(self) -> StartedGeneration:
        """Wait until the arguments are checked; raises their error."""
        event: StartedGeneration = await self._next()
        return event

    async def pieces(self) -> AsyncIterator[Piece]:
        """The pieces as they are generated; raises the error of the generation."""
        while (event := await self._next()) is not END:
            yield event

    def cancel(self) -> None:
        """End the generation at its next step, and remove its rows from the batch."""
        with self._lock:
            self._is_cancelled = True
            model = self._model
        if model is not None:
            model.cancel(RequestCancelled())

    async def _next(self) -> Any:
        event = await self._events.get()
        if isinstance(event, BaseException):
            raise event
        return event

    def _emit(self, event: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    def _work(self) -> None:
        with self._lock:
            if self._is_cancelled:
                return
            self._model = model = self._scheduler.open_request(self._deadline)
        with model:
            try:
                generate(model, self._request, self._limits, self._emit)
                self._emit(END)
            except RequestCancelled as error:
                self._emit(error)
            except ValueError as error:  # for example a TopK larger than the vocabulary
                code = "model_failed" if model.has_failed else None
                self._emit(ApiError(500 if model.has_failed else 400, str(error), code=code))
            except Exception as error:
                log.info("a request failed", exc_info=True)
                self._emit(error)


async def respond(
    builder: ResponseBuilder, task: GenerationTask, request: Request, metrics: Metrics
) -> Response:
    """Send the response: complete at the end, or streamed in chunks."""
    count = partial(_count, metrics, time.monotonic())
    watcher = asyncio.create_task(cancel_on_disconnect(request, task))
    try:
        started = await task.started()
    except BaseException:
        task.cancel()
        watcher.cancel()
        raise
    builder.start(started.job)
    if builder.body.stream:
        watcher.cancel()  # StreamingResponse notices a disconnect itself
        events = _events(builder, task, started, count)
        return StreamingResponse(events, media_type="text/event-stream")
    try:
        async for piece in task.pieces():
            count(builder, piece)
            builder.add(piece)
    except Exception as error:
        raise as_api_error(error, started=True) from error
    finally:
        task.cancel()
        watcher.cancel()
    return JSONResponse(builder.response(started))


async def _events(
    builder: ResponseBuilder,
    task: GenerationTask,
    started: StartedGeneration,
    count: Callable[[ResponseBuilder, Piece], None],
) -> AsyncIterator[bytes]:
    try:
        for chunk in builder.echo_chunks(started):
            yield _event(chunk)
        async for piece in task.pieces():
            count(builder, piece)
            yield _event(builder.chunk(piece))
        if builder.body.stream_options is not None and builder.body.stream_options.include_usage:
            yield _event(builder.envelope.chunk([], usage(started.job.prompts, builder.new_tokens)))
        yield b"data: [DONE]\n\n"
    except Exception as error:
        yield _event(error_record(as_api_error(error, started=True)))
    finally:
        task.cancel()


def _count(metrics: Metrics, began: float, builder: ResponseBuilder, piece: Piece) -> None:
    if builder.new_tokens == 0 and piece.tokens:
        metrics.add("first_tokens")
        metrics.add("first_token_seconds", time.monotonic() - began)
    builder.new_tokens += len(piece.tokens)
    metrics.add("generated_tokens", len(piece.tokens))


def _event(record: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(record, ensure_ascii=False, allow_nan=False).encode() + b"\n\n"


class Cancellable(Protocol):
    """A task that can be cancelled from another thread."""

    def cancel(self) -> None:
        """End the work soon."""


async def cancel_on_disconnect(request: Request, task: Cancellable) -> None:
    """Cancel the task when the client disconnects."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    task.cancel()
