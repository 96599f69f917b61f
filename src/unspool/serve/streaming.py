"""One request's answer as it grows: pieces become chunks of a stream, or all of it one object."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from fastapi import Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from unspool.decode.hypothesis import Job, Ranked
from unspool.decode.output import Piece
from unspool.decode.run import Run
from unspool.interfaces import Decoder, StepModel, TokenizerLike
from unspool.serve.api_error import ApiError, error_record, told
from unspool.serve.guard import Metrics
from unspool.serve.requests import DecodingFields, Limits, check_search
from unspool.serve.responses import FINISH, Choice, Envelope, Form, TokenOffsets, usage
from unspool.serve.scheduler import Engine
from unspool.serve.shared_model import GivenUp
from unspool.serve.worker_pool import WorkerPool

# One request's work, in its thread: prompts to a job, a search on the shared model, pieces as they come.


SLICE = 64
"""Tokens of a prompt that are scored at once."""


@dataclass(frozen=True)
class Asked:
    """What a request wants."""

    prompts: Any
    decoder: Decoder
    options: dict[str, Any]
    """Of `us.generate`."""
    score_prompts: int | None = None
    """How many alternatives to tell at every place of the prompts; None: the prompts are not scored."""


@dataclass(frozen=True)
class Begun:
    """All has been checked, and the prompts are known."""

    job: Job
    scored: Sequence[Piece]
    """The prompts as pieces, where they were to be scored; log p of the first token is NaN."""


def generate(model: StepModel, asked: Asked, limits: Limits, tell: Callable[[Begun | Piece], None]) -> None:
    """Tell that it has begun, and then every piece."""
    check_search(asked.decoder, limits)
    new = asked.options["max_new_tokens"]
    options = {**asked.options, "max_new_tokens": max(1, min(new, limits.new_tokens))}
    run = Run(model, asked.prompts, asked.decoder, **options)
    for prompt in run.job.prompts:
        if len(prompt) > limits.prompt_tokens:
            raise ValueError(
                f"the prompt has {len(prompt)} tokens, and this server reads {limits.prompt_tokens} at most"
            )
    pieces = run.pieces()
    count = asked.score_prompts
    scored = [] if count is None else [scored_prompt(model, ids, count) for ids in run.job.prompts]
    tell(Begun(run.job, scored))
    if new > 0:
        for piece in pieces:
            tell(piece)


def scored_prompt(model: StepModel, ids: Sequence[int], count: int) -> Piece:
    """A prompt as a piece: log p of each token given those before it, with the most probable ones."""
    step, state = model.start([ids[:1]])
    logps, ranked = [float("nan")], [Ranked((), ())]
    place = 1
    while place < len(ids):
        read = list(ids[place : place + SLICE]) if model.rewindable is not None else [ids[place]]
        rows_TV = step.logp_NV[-1:]
        tokens_1T = torch.tensor([read])
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
        place += len(read)
    text = "" if model.tokenizer is None else model.tokenizer.decode(ids)
    return Piece(text, tuple(ids), 0, 0, None, tuple(logps), tuple(logps), tuple(ranked))


class GrowingAnswer:
    """What has been told of a request so far; its text comes from `Piece`s."""

    def __init__(
        self,
        form: Form,
        body: DecodingFields,
        text: TokenizerLike | None,
        alternatives: int | None,
        *,
        echo: bool = False,
    ) -> None:
        self.body, self.envelope, self.new = body, Envelope(form, body.model), 0
        self._form, self._text, self._alternatives, self._echo = form, text, alternatives, echo
        self._choices: dict[tuple[int, int], Choice] = {}
        self._offsets: dict[tuple[int, int], TokenOffsets] = {}
        self._job: Job | None = None

    def begin(self, job: Job) -> None:
        """All has been checked, and the prompts are known."""
        self._job = job

    def add(self, piece: Piece) -> None:
        """Keep a piece for the whole answer."""
        self._choices.setdefault((piece.request, piece.sample), Choice()).add(piece)

    def whole(self, begun: Begun) -> dict[str, Any]:
        """The finished answer."""
        choices = []
        for request, prompt in enumerate(begun.job.prompts):
            texts = [self._choices[key] for key in sorted(self._choices) if key[0] == request]
            if len(texts) > self.body.n:
                texts = sorted(texts, key=lambda text: -text.mean)[: self.body.n]
            for sample, text in enumerate(texts or [Choice(finish_reason="length")] * self.body.n):
                shown = self._with_prompt(begun, request, prompt, text)
                record = {
                    "index": request * self.body.n + sample,
                    **self._form.whole(shown),
                    "logprobs": self._logs((request, sample), shown),
                    "finish_reason": FINISH[text.finish_reason],
                }
                choices.append(record)
        return self.envelope.whole(choices, usage(begun.job.prompts, self.new))

    def echoed(self, begun: Begun) -> list[dict[str, Any]]:
        """Chunks that repeat the prompts, where that was asked for."""
        if not self._echo:
            return []
        found = []
        for request, prompt in enumerate(begun.job.prompts):
            text = self._with_prompt(begun, request, prompt, Choice())
            for sample in range(self.body.n):
                found.append(self._part((request, sample), text.text, text, None))  # noqa: PERF401
        return [self.envelope.chunk([each]) for each in found]

    def chunk(self, piece: Piece) -> dict[str, Any]:
        """One piece as a chunk."""
        key = (piece.request, piece.sample)
        return self.envelope.chunk([self._part(key, piece.text, piece, piece.finish_reason)])

    def _part(
        self, key: tuple[int, int], text: str, piece: Choice | Piece, finish: str | None
    ) -> dict[str, Any]:
        first = key not in self._choices
        self._choices.setdefault(key, Choice())
        return {
            "index": key[0] * self.body.n + key[1],
            **self._form.part(text, first),
            "logprobs": self._logs(key, piece),
            "finish_reason": FINISH[finish],
        }

    def _logs(self, key: tuple[int, int], piece: Choice | Piece) -> dict[str, Any] | None:
        if self._alternatives is None or self._text is None:
            return None
        if key not in self._offsets:
            self._offsets[key] = self._begun(self._text, key[0])
        return self._form.logprobs(self._text, piece, self._alternatives, self._offsets[key](piece.tokens))

    def _begun(self, text: TokenizerLike, request: int) -> TokenOffsets:
        """What an echo repeats is a part of the text; otherwise the text begins behind the prompt."""
        if self._echo or self._job is None or self._job.is_encoder_decoder:
            return TokenOffsets(text)
        return TokenOffsets(text, after=self._job.prompts[request][-1])

    def _with_prompt(self, begun: Begun, request: int, prompt: Sequence[int], text: Choice) -> Choice:
        if not self._echo:
            return text
        both = Choice(finish_reason=text.finish_reason)
        if begun.scored:
            both.add(begun.scored[request])
        else:
            both.text = "" if self._text is None else self._text.decode(prompt)
        both.text += text.text
        both.tokens += text.tokens
        both.logps += text.logps
        both.ranked += text.ranked
        return both


# A request between two worlds: a search in a thread, and the asynchronous handler that sends its pieces.


log = logging.getLogger("unspool.serve")
END = object()


class Running:
    """One request's work; what it tells comes out of `begun` and `pieces`."""

    def __init__(self, engine: Engine, pool: WorkerPool, asked: Asked, limits: Limits) -> None:
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[Any] = asyncio.Queue()
        self._asked, self._limits = asked, limits
        self._stopped = False
        self._lock = threading.Lock()
        self._model: Any = None
        self._engine, self._deadline = engine, time.monotonic() + limits.seconds
        pool.submit(self._work)

    async def begun(self) -> Begun:
        """Wait until all has been checked; raises what was found wrong."""
        event: Begun = await self._next()
        return event

    async def pieces(self) -> AsyncIterator[Piece]:
        """Pieces as they come; raises what went wrong."""
        while (event := await self._next()) is not END:
            yield event

    def stop(self) -> None:
        """Nobody listens any more: the search ends where it waits, and its rows leave the batch."""
        with self._lock:
            self._stopped = True
            model = self._model
        if model is not None:
            model.stop(GivenUp())

    async def _next(self) -> Any:
        event = await self._events.get()
        if isinstance(event, BaseException):
            raise event
        return event

    def _tell(self, event: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    def _work(self) -> None:
        with self._lock:
            if self._stopped:
                return
            self._model = self._engine.open(self._deadline)
        with self._model:
            try:
                generate(self._model, self._asked, self._limits, self._tell)
                self._tell(END)
            except GivenUp as error:
                self._tell(error)
            except ValueError as error:  # such as a TopK that is larger than the vocabulary
                failed = self._model.failed
                self._tell(
                    ApiError(500, str(error), code="model_failed") if failed else ApiError(400, str(error))
                )
            except Exception as error:
                log.info("a request failed", exc_info=True)
                self._tell(error)


# How an answer is sent: as one JSON object, or as server-sent events while it is written.


async def respond(answer: GrowingAnswer, running: Running, request: Request, metrics: Metrics) -> Response:
    """Send the answer: whole when it is finished, or piece by piece."""
    count = partial(_count, metrics, time.monotonic())
    gone = asyncio.create_task(_gone(request, running))
    try:
        begun = await running.begun()
    except BaseException:
        running.stop()
        gone.cancel()
        raise
    answer.begin(begun.job)
    if answer.body.stream:
        gone.cancel()  # the streaming response listens for that itself
        events = _events(answer, running, begun, count)
        return StreamingResponse(events, media_type="text/event-stream")
    try:
        async for piece in running.pieces():
            count(answer, piece)
            answer.add(piece)
    except Exception as error:
        raise told(error, begun=True) from error
    finally:
        running.stop()
        gone.cancel()
    return JSONResponse(answer.whole(begun))


async def _events(
    answer: GrowingAnswer, running: Running, begun: Begun, count: Callable[[GrowingAnswer, Piece], None]
) -> AsyncIterator[bytes]:
    try:
        for record in answer.echoed(begun):
            yield _event(record)
        async for piece in running.pieces():
            count(answer, piece)
            yield _event(answer.chunk(piece))
        if answer.body.stream_options is not None and answer.body.stream_options.include_usage:
            yield _event(answer.envelope.chunk([], usage(begun.job.prompts, answer.new)))
        yield b"data: [DONE]\n\n"
    except Exception as error:
        yield _event(error_record(told(error, begun=True)))
    finally:
        running.stop()


def _count(metrics: Metrics, began: float, answer: GrowingAnswer, piece: Piece) -> None:
    if answer.new == 0 and piece.tokens:
        metrics.add("first_tokens")
        metrics.add("first_token_seconds", time.monotonic() - began)
    answer.new += len(piece.tokens)
    metrics.add("generated_tokens", len(piece.tokens))


def _event(record: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(record, ensure_ascii=False, allow_nan=False).encode() + b"\n\n"


async def _gone(request: Request, running: Running) -> None:
    """Stop the work when the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    running.stop()
