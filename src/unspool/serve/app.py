"""The API: OpenAI's routes over engines, and how each answers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException

from unspool.decode.output import Piece
from unspool.serve.answers import (
    CHAT,
    COMPLETION,
    FINISH,
    Choice,
    Envelope,
    Form,
    chat_logprobs,
    completion_logprobs,
    usage,
)
from unspool.serve.api_error import ApiError, error_record, told
from unspool.serve.engine import Engine
from unspool.serve.generation import Asked, Begun
from unspool.serve.guard import Guard
from unspool.serve.limits import Limits
from unspool.serve.metrics import Metrics
from unspool.serve.request_fields import ChatRequest, CompletionRequest, DecodingFields, TokenizeRequest
from unspool.serve.running import Running
from unspool.serve.search_fields import search_of
from unspool.serve.shared_model import probe
from unspool.serve.worker_pool import WorkerPool

PROBE_SECONDS = 30.0
"""What /health gives an engine to answer."""
LONGEST_ANSWER = 1 << 30
"""Tokens of an answer whose length nobody has limited: what fits into the context."""


class Server:
    """Engines by name, the threads that run requests, and the routes to them."""

    def __init__(self, engines: Mapping[str, Engine], pool: WorkerPool, limits: Limits) -> None:
        self.engines, self.pool, self.limits = dict(engines), pool, limits
        self.metrics, self._since = Metrics(), int(time.time())

    def engine(self, name: str) -> Engine:
        """The engine of that name."""
        if name not in self.engines:
            known = ", ".join(self.engines)
            raise ApiError(404, f"the model {name!r:.80} is not served: choose from {known}", "model")
        return self.engines[name]

    async def models(self) -> dict[str, Any]:
        """GET /v1/models."""
        return {"object": "list", "data": [await self.model(name) for name in self.engines]}

    async def model(self, name: str) -> dict[str, Any]:
        """GET /v1/models/{name}."""
        model = self.engine(name).model
        return {
            "id": name,
            "object": "model",
            "created": self._since,
            "owned_by": "unspool",
            "max_model_len": model.context,
        }

    async def completions(self, body: CompletionRequest, request: Request) -> Response:
        """POST /v1/completions."""
        count = body.best_of or body.n
        if count < body.n:
            raise ApiError(400, f"best_of={count} is less than n={body.n}", "best_of")
        if body.stream and count > body.n:
            raise ApiError(400, "best_of cannot be streamed: the best is known at the end", "best_of")
        if body.max_tokens == 0 and not body.echo:
            raise ApiError(400, "max_tokens=0 asks for nothing: give echo, or a number above 0", "max_tokens")
        prompts = body.prompt if isinstance(body.prompt, list) and not isinstance(body.prompt[0], int) else 1
        self._bound(count * (1 if prompts == 1 else len(body.prompt)))
        options = self._options(body, body.max_tokens, count, body.logprobs)
        scored = (body.logprobs or 0) if body.echo and body.logprobs is not None else None
        asked = Asked(body.prompt, _search(body), options, scored)
        running = self._run(body, asked)
        logprobs = None if body.logprobs is None else partial(completion_logprobs, count=body.logprobs)
        answer = _Answer(COMPLETION, body, self.engine(body.model), logprobs, echo=body.echo)
        return await self._respond(answer, running, request)

    async def chat(self, body: ChatRequest, request: Request) -> Response:
        """POST /v1/chat/completions."""
        self._bound(body.n)
        if body.top_logprobs and not body.logprobs:
            raise ApiError(400, "top_logprobs needs logprobs: true", "top_logprobs")
        longest = body.max_completion_tokens or body.max_tokens or LONGEST_ANSWER
        options = self._options(body, longest, body.n, body.top_logprobs)
        messages = [{"role": it.role, "content": it.content} for it in body.messages]
        running = self._run(body, Asked([messages], _search(body), options))
        logprobs = partial(chat_logprobs, count=body.top_logprobs) if body.logprobs else None
        return await self._respond(_Answer(CHAT, body, self.engine(body.model), logprobs), running, request)

    async def tokenize(self, body: TokenizeRequest) -> dict[str, Any]:
        """POST /tokenize."""
        model = self.engine(body.model or next(iter(self.engines))).model
        if model.text is None:
            raise ApiError(400, "this model has no tokenizer")
        ids = await asyncio.to_thread(model.text.encode, body.prompt)
        return {"count": len(ids), "max_model_len": model.context, "tokens": ids}

    async def health(self) -> dict[str, Any]:
        """GET /health: every engine reads one token."""
        for name, engine in self.engines.items():
            try:
                await asyncio.to_thread(_probe, engine)
            except Exception as error:
                raise ApiError(503, f"{name} does not answer ({type(error).__name__})") from error
        return {"status": "ok", "models": list(self.engines)}

    async def counted(self) -> PlainTextResponse:
        """GET /metrics."""
        gauges: dict[str, float] = {
            "requests_running": self.pool.running,
            "requests_waiting": self.pool.waiting,
        }
        for name in ("steps", "rows", "prompt_tokens"):
            gauges[f"engine_{name}"] = sum(getattr(it.counts, name) for it in self.engines.values())
        return PlainTextResponse(self.metrics.text(gauges), media_type="text/plain; version=0.0.4")

    def _bound(self, rows: int) -> None:
        if rows > self.limits.rows:
            raise ApiError(400, f"{rows} texts are asked for, and a request may have {self.limits.rows}", "n")

    def _options(self, body: DecodingFields, new: int, n: int, alternatives: int | None) -> dict[str, Any]:
        return {
            "max_new_tokens": new,
            "n": n,
            "seed": body.seed,
            "stop": body.stop,
            "stop_ids": body.stop_token_ids or (),
            "on_loop": "stop" if body.stop_loops else "ignore",
            "alternatives": alternatives or 0,
            "batch_size": self.limits.width,
        }

    def _run(self, body: DecodingFields, asked: Asked) -> Running:
        known = self.engine(body.model).model.vocab_size
        outside = [token for token in body.logit_bias or () if int(token) >= known]
        if outside:
            wrong = f"logit_bias holds token {outside[0]}, outside the model's vocabulary 0…{known - 1}"
            raise ApiError(400, wrong, "logit_bias")
        return Running(self.engine(body.model), self.pool, asked, self.limits)

    async def _respond(self, answer: _Answer, running: Running, request: Request) -> Response:
        began = time.monotonic()
        gone = asyncio.create_task(_gone(request, running))
        try:
            begun = await running.begun()
        except BaseException:
            running.stop()
            gone.cancel()
            raise
        if answer.body.stream:
            gone.cancel()  # the streaming response listens for that itself
            events = self._events(answer, running, begun, began)
            return StreamingResponse(events, media_type="text/event-stream")
        try:
            async for piece in running.pieces():
                self._count(answer, piece, began)
                answer.add(piece)
        except Exception as error:
            raise told(error, begun=True) from error
        finally:
            running.stop()
            gone.cancel()
        return JSONResponse(answer.whole(begun))

    async def _events(
        self, answer: _Answer, running: Running, begun: Begun, began: float
    ) -> AsyncIterator[bytes]:
        try:
            for record in answer.echoed(begun):
                yield _event(record)
            async for piece in running.pieces():
                self._count(answer, piece, began)
                yield _event(answer.chunk(piece))
            if answer.body.stream_options is not None and answer.body.stream_options.include_usage:
                yield _event(answer.envelope.chunk([], usage(begun.job.prompts, answer.new)))
            yield b"data: [DONE]\n\n"
        except Exception as error:
            yield _event(error_record(told(error, begun=True)))
        finally:
            running.stop()

    def _count(self, answer: _Answer, piece: Piece, began: float) -> None:
        if answer.new == 0 and piece.tokens:
            self.metrics.add("first_tokens")
            self.metrics.add("first_token_seconds", time.monotonic() - began)
        answer.new += len(piece.tokens)
        self.metrics.add("generated_tokens", len(piece.tokens))


class _Answer:
    """What has been told of a request so far."""

    def __init__(
        self, form: Form, body: Any, engine: Engine, logprobs: Any = None, *, echo: bool = False
    ) -> None:
        self.form, self.body, self._logprobs, self._echo = form, body, logprobs, echo
        self.envelope = Envelope(form, body.model)
        self.new = 0
        self._per_prompt = getattr(body, "best_of", None) or body.n
        self._choices: dict[tuple[int, int], Choice] = {}
        self._length: dict[tuple[int, int], int] = {}
        self._text = engine.model.text

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
            for sample, text in enumerate(texts or [Choice(finish="length")] * self.body.n):
                shown = self._with_prompt(begun, request, prompt, text)
                record = {
                    "index": request * self.body.n + sample,
                    **self.form.whole(shown),
                    "logprobs": self._logs(shown, 0),
                    "finish_reason": FINISH[text.finish],
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
                self._length[request, sample] = len(text.text)
                found.append(self._part((request, sample), text.text, text, 0, None))
        return [self.envelope.chunk([each]) for each in found]

    def chunk(self, piece: Piece) -> dict[str, Any]:
        """One piece as a chunk."""
        key = (piece.request, piece.sample)
        offset = self._length.get(key, 0)
        return self.envelope.chunk([self._part(key, piece.text, piece, offset, piece.finish)])

    def _part(
        self, key: tuple[int, int], text: str, piece: Choice | Piece, offset: int, finish: str | None
    ) -> dict[str, Any]:
        first = key not in self._choices
        self._choices.setdefault(key, Choice())
        self._length[key] = offset + len(text)
        return {
            "index": key[0] * self._per_prompt + key[1],
            **self.form.part(text, first),
            "logprobs": self._logs(piece, offset),
            "finish_reason": FINISH[finish],
        }

    def _logs(self, piece: Choice | Piece, offset: int) -> dict[str, Any] | None:
        if self._logprobs is None or self._text is None:
            return None
        told: dict[str, Any] = (
            self._logprobs(self._text.show, piece, offset=offset)
            if self.form is COMPLETION
            else self._logprobs(self._text.show, piece)
        )
        return told

    def _with_prompt(self, begun: Begun, request: int, prompt: Sequence[int], text: Choice) -> Choice:
        if not self._echo:
            return text
        both = Choice(finish=text.finish)
        if begun.scored:
            both.add(begun.scored[request])
        else:
            both.text = "" if self._text is None else self._text.decode(prompt)
        both.text += text.text
        both.tokens += text.tokens
        both.logps += text.logps
        both.ranked += text.ranked
        return both


def _search(body: DecodingFields) -> Any:
    try:
        return search_of(body)
    except (ValueError, TypeError, ModuleNotFoundError) as error:
        raise ApiError(400, str(error)) from error


def _event(record: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(record, ensure_ascii=False, allow_nan=False).encode() + b"\n\n"


async def _gone(request: Request, running: Running) -> None:
    """Stop the work when the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    running.stop()


def _probe(engine: Engine) -> None:
    with engine.open(time.monotonic() + PROBE_SECONDS) as model:
        probe(model)


def create_app(server: Server, keys: Sequence[str] = ()) -> Guard:
    """The ASGI application: the guard, and the routes behind it."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        for engine in server.engines.values():
            await asyncio.to_thread(engine.close)

    app = FastAPI(title="unspool", docs_url=None, redoc_url=None, lifespan=lifespan)
    app.get("/v1/models")(server.models)
    app.get("/v1/models/{name:path}")(server.model)
    app.post("/v1/completions", response_model=None)(server.completions)
    app.post("/v1/chat/completions", response_model=None)(server.chat)
    app.post("/tokenize")(server.tokenize)
    app.get("/health")(server.health)
    app.get("/metrics", response_class=PlainTextResponse)(server.counted)

    app.openapi = partial(_described, app)  # type: ignore[method-assign]

    async def failed(request: Request, error: Exception) -> JSONResponse:
        found = told(error, begun=False)
        server.metrics.add("requests", path=_route(request), status=str(found.status))
        return JSONResponse(error_record(found), found.status, found.headers)

    async def invalid(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        where = ".".join(str(each) for each in first["loc"] if each != "body")
        return await failed(request, ApiError(400, f"{where or 'body'}: {first['msg']}"[:500], where or None))

    async def missing(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        return await failed(request, ApiError(error.status_code, str(error.detail)))

    for kind, answer in (
        (RequestValidationError, invalid),
        (HTTPException, missing),
        (ApiError, failed),
        (Exception, failed),
    ):
        app.add_exception_handler(kind, answer)
    for kind in (ValueError, TypeError):
        app.add_exception_handler(kind, failed)
    return Guard(app, keys, server.limits.body_bytes)


def _described(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document: what is refused is told as OpenAI tells it, and not as FastAPI would."""
    words = {name: {"type": ["string", "null"]} for name in ("param", "code")}
    error = {"message": {"type": "string"}, "type": {"type": "string"}, **words}
    body = {"type": "object", "properties": {"error": {"type": "object", "properties": error}}}
    refused = {"description": "What was wrong", "content": {"application/json": {"schema": body}}}
    described = FastAPI.openapi(app)
    for operations in described["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)
            operation["responses"]["default"] = refused
            if operation["operationId"].startswith(("completions", "chat")):
                whole = operation["responses"]["200"]["content"]
                whole["text/event-stream"] = {"schema": {"type": "string"}}
    return described


def _route(request: Request) -> str:
    """The route's own path: what a client wrote is no label."""
    route = request.scope.get("route")
    return getattr(route, "path", "unknown")
