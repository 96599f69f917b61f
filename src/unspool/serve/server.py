"""The ASGI application: handlers and routes of the API, error responses, and the guard in front of them."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import numpy as np
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from unspool.config import suggest
from unspool.decode.prompts import check_ids, ids_of
from unspool.interfaces import StepModel
from unspool.serve.api_error import ApiError, as_api_error, error_record
from unspool.serve.generation import Emit, Work, chat_work, completion_work
from unspool.serve.guard import Guard
from unspool.serve.metrics import Metrics, RequestLog, RequestRecord, record_of
from unspool.serve.page.routes import PageContent, add_routes
from unspool.serve.requests import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    EmbeddingRequest,
    Limits,
    TokenizeRequest,
    chat_prompt,
    ignored_fields,
)
from unspool.serve.response_builders import ChatBuilder, CompletionBuilder
from unspool.serve.response_models import (
    ChatCompletion,
    Completion,
    Detokenized,
    EmbeddingList,
    ErrorResponse,
    Health,
    ModelCard,
    ModelList,
    Tokens,
)
from unspool.serve.responses_api import ResponseObject, ResponsesBuilder, ResponsesRequest
from unspool.serve.scheduler import Scheduler, SharedModel
from unspool.serve.streaming import ModelTask, WorkerPool, cancel_on_disconnect, respond

READY_SECONDS = 1.0
"""How long the answer of /ready is valid: probes of many clients cost one token a second."""


class Server:
    """Schedulers by model name, the worker threads, and the handlers of the routes.

    `aliases` are other names of models. With `is_strict`, unknown fields are refused.
    """

    def __init__(
        self,
        schedulers: Mapping[str, Scheduler],
        pool: WorkerPool,
        limits: Limits,
        aliases: Mapping[str, str] | None = None,
        *,
        is_strict: bool = False,
    ) -> None:
        self.schedulers, self.pool, self.limits = dict(schedulers), pool, limits
        self.aliases, self.is_strict = dict(aliases or {}), is_strict
        self.metrics, self._since = Metrics(), int(time.time())
        self._ready_until = 0.0

    def scheduler(self, name: str) -> Scheduler:
        """The scheduler of a model; 404 if it is not served."""
        name = self.aliases.get(name, name)
        if name not in self.schedulers:
            message = f"model {name!r:.80} is not served: {suggest(name, [*self.schedulers, *self.aliases])}"
            raise ApiError(404, message, "model")
        return self.schedulers[name]

    async def models(self) -> dict[str, Any]:
        names = (*self.schedulers, *self.aliases)
        return {"data": [await self.model(name) for name in names]}

    async def model(self, name: str) -> dict[str, Any]:
        model = self.scheduler(name).model
        return {"id": name, "created": self._since, "max_model_len": model.context}

    async def completions(self, body: CompletionRequest, request: Request) -> Response:
        count = body.best_of or body.n
        if count < body.n:
            raise ApiError(400, f"best_of={count} is less than n={body.n}", "best_of")
        if body.stream and count > body.n:
            raise ApiError(
                400, "best_of cannot be streamed: the best text is known only at the end", "best_of"
            )
        if body.max_tokens == 0 and not body.echo and body.prompt_logprobs is None:
            raise ApiError(400, "max_tokens=0 needs echo: true", "max_tokens")
        is_batch = isinstance(body.prompt, list) and not isinstance(body.prompt[0], int)
        self._check_rows(count * (len(body.prompt) if is_batch else 1))
        record, scheduler = self._open(body, request)
        builder = CompletionBuilder(
            body,
            scheduler.model.tokenizer,
            body.logprobs,
            echo=body.echo,
            show_prompt_logprobs=body.prompt_logprobs is not None,
        )
        prepare = partial(completion_work, body, scheduler.model, self.limits)
        return await respond(builder, self._start(scheduler, prepare, record), request, self.metrics, record)

    async def chat(self, body: ChatRequest, request: Request) -> Response:
        self._check_rows(body.n)
        if body.top_logprobs and not body.logprobs:
            raise ApiError(400, "top_logprobs needs logprobs: true", "top_logprobs")
        record, scheduler = self._open(body, request)
        alternatives = body.top_logprobs if body.logprobs else None
        builder = ChatBuilder(body, scheduler.model.tokenizer, alternatives)
        prepare = partial(chat_work, body, scheduler.model, self.limits)
        return await respond(builder, self._start(scheduler, prepare, record), request, self.metrics, record)

    async def responses(self, body: ResponsesRequest, request: Request) -> Response:
        """POST /v1/responses: a chat in OpenAI's newer format."""
        record, scheduler = self._open(body, request)
        chat = body.as_chat()
        builder = ResponsesBuilder(chat, body, scheduler.model.tokenizer)
        prepare = partial(chat_work, chat, scheduler.model, self.limits)
        return await respond(builder, self._start(scheduler, prepare, record), request, self.metrics, record)

    async def embeddings(self, body: EmbeddingRequest, request: Request) -> dict[str, Any]:
        """POST /v1/embeddings: the mean of the last hidden states, scaled to length 1."""
        record, scheduler = self._open(body, request)
        if scheduler.model.prompt_reading is None or scheduler.model.is_encoder_decoder:
            raise ApiError(400, "embeddings need a Transformer language model", "model")
        is_single = isinstance(body.input, str) or isinstance(body.input[0], int)
        inputs: Sequence[Any] = [body.input] if is_single else body.input
        prepare = partial(_embedding_work, scheduler.model, inputs, self.limits)
        task = self._start(scheduler, prepare, record)
        async with cancel_on_disconnect(task, request):
            vectors, tokens = await anext(task)
        record.prompt_tokens = tokens
        data = []
        for index, vector in enumerate(vectors):
            packed = vector if body.encoding_format == "float" else _base64(vector)
            data.append({"object": "embedding", "index": index, "embedding": packed})
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "model": body.model, "data": data, "usage": usage}

    async def tokenize(self, body: TokenizeRequest, request: Request) -> dict[str, Any]:
        """POST /tokenize: the tokens of a prompt, or of a rendered chat."""
        _, scheduler = self._open(body, request)
        model = scheduler.model
        tokenizer = model.tokenizer
        if tokenizer is None:
            raise ApiError(400, "this model does not have a tokenizer")
        if (body.prompt is None) == (not body.messages):
            raise ApiError(400, "give one of prompt and messages", "prompt")

        def encode() -> list[int]:
            text = body.prompt
            if text is None:
                text = chat_prompt(tokenizer, body.messages, body.tools, body.chat_template_kwargs)
            ids = tokenizer.encode(text)
            return ids if body.add_special_tokens or ids[:1] != [tokenizer.bos_id] else ids[1:]

        ids = await asyncio.to_thread(encode)
        return {"count": len(ids), "max_model_len": model.context, "tokens": ids}

    async def detokenize(self, body: DetokenizeRequest, request: Request) -> dict[str, Any]:
        """POST /detokenize: the text of tokens."""
        _, scheduler = self._open(body, request)
        if scheduler.model.tokenizer is None:
            raise ApiError(400, "this model does not have a tokenizer")
        check_ids(scheduler.model.vocab_size, body.tokens, "tokens")
        return {"prompt": scheduler.model.tokenizer.decode(body.tokens)}

    async def health(self) -> dict[str, str]:
        """GET /health: the process answers. Needs no key."""
        return {"status": "ok"}

    async def ready(self) -> dict[str, str]:
        """GET /ready: every model has read a token within the last second."""
        if self.pool.is_closed:
            raise ApiError(503, "the server is closing")
        if time.monotonic() >= self._ready_until:
            for name, scheduler in self.schedulers.items():
                try:
                    await asyncio.to_thread(scheduler.probe)
                except Exception as error:
                    raise ApiError(503, f"{name} does not respond ({type(error).__name__})") from error
            self._ready_until = time.monotonic() + READY_SECONDS
        return {"status": "ok"}

    async def prometheus(self) -> PlainTextResponse:
        gauges: dict[str, float] = {
            "requests_running": self.pool.running,
            "requests_waiting": self.pool.waiting,
        }
        for scheduler in self.schedulers.values():
            for name, count in scheduler.counts.items():
                gauges[f"engine_{name}"] = gauges.get(f"engine_{name}", 0) + count
        for name in ("read", "shared"):
            counts = [getattr(scheduler.batch, f"{name}_tokens") for scheduler in self.schedulers.values()]
            gauges[f"prompt_tokens_{name}"] = sum(counts)
        return PlainTextResponse(self.metrics.text(gauges), media_type="text/plain; version=0.0.4")

    def _check_rows(self, rows: int) -> None:
        if rows > self.limits.rows:
            raise ApiError(400, f"{rows} texts are more than {self.limits.rows}, the limit per request", "n")

    def _open(self, body: Any, request: Request) -> tuple[RequestRecord, Scheduler]:
        """The record and the scheduler of a request; notes its unknown fields, or refuses them if strict."""
        record = record_of(request)
        record.warnings = list(ignored_fields(body))
        if self.is_strict and record.warnings:
            name = record.warnings[0]
            raise ApiError(400, f"{name!r:.80} is not a field of this request", name)
        name = body.model or next(iter(self.schedulers))
        scheduler = self.scheduler(name)
        record.model = self.aliases.get(name, name)
        return record, scheduler

    def _start(self, scheduler: Scheduler, prepare: Any, record: RequestRecord) -> ModelTask:
        return ModelTask(scheduler, self.pool, prepare, self.limits.seconds, record)


def _embedding_work(model: StepModel, inputs: Sequence[Any], limits: Limits) -> Work:
    prompts = [ids_of(model, text, index) for index, text in enumerate(inputs)]
    longest = max(map(len, prompts))
    most = min(limits.prompt_tokens, model.context or limits.prompt_tokens)
    if longest > most:
        raise ValueError(f"an input has {longest} tokens, but this server allows {most}")

    def work(shared: SharedModel, emit: Emit) -> None:
        vectors = []
        for ids in prompts:
            hidden_MD, _, _ = shared.read_all([ids])
            mean_D = hidden_MD.double().mean(dim=0)
            vectors.append((mean_D / mean_D.norm().clamp(min=1e-12)).tolist())
            shared.release_slots()
        emit((vectors, sum(map(len, prompts))))

    return work


def _base64(vector: Sequence[float]) -> str:
    return base64.b64encode(np.asarray(vector, dtype="<f4").tobytes()).decode()


CLOSE_SECONDS = 5.0
"""How long to wait for the threads of requests that were cancelled at the end."""
Responses = dict[int | str, dict[str, Any]]
ERROR_RESPONSES: Responses = {"default": {"model": ErrorResponse, "description": "An error"}}
"""Documents every error in OpenAI's format, instead of FastAPI's 422."""


def streamed(model: type[BaseModel]) -> Responses:
    """The documentation of a route that returns one object, or server-sent events."""
    events = {"text/event-stream": {"schema": {"type": "string"}}}
    return {200: {"model": model, "description": "The response, or its chunks", "content": events}}


def create_app(
    server: Server, keys: Sequence[str] = (), content: PageContent | None = None, *, json_log: bool = False
) -> RequestLog:
    """The ASGI application: the routes behind the guard, and the log around both."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        for scheduler in server.schedulers.values():
            await asyncio.to_thread(scheduler.close)
        await asyncio.to_thread(server.pool.close, CLOSE_SECONDS)

    app = FastAPI(
        title="unspool", docs_url=None, redoc_url=None, lifespan=lifespan, responses=ERROR_RESPONSES
    )
    app.get("/v1/models", response_model=ModelList)(server.models)
    app.get("/v1/models/{name:path}", response_model=ModelCard)(server.model)
    app.post("/v1/completions", response_model=None, responses=streamed(Completion))(server.completions)
    app.post("/v1/chat/completions", response_model=None, responses=streamed(ChatCompletion))(server.chat)
    app.post("/v1/responses", response_model=None, responses=streamed(ResponseObject))(server.responses)
    app.post("/v1/embeddings", response_model=EmbeddingList)(server.embeddings)
    app.post("/tokenize", response_model=Tokens)(server.tokenize)
    app.post("/detokenize", response_model=Detokenized)(server.detokenize)
    app.get("/health", response_model=Health)(server.health)
    app.get("/ready", response_model=Health)(server.ready)
    app.get("/metrics", response_class=PlainTextResponse)(server.prometheus)
    app.state.server = server
    add_routes(app, server, content or PageContent())

    async def failed(_: Request, error: Exception) -> JSONResponse:
        response = as_api_error(error, started=False)
        return JSONResponse(error_record(response), response.status, response.headers)

    for kind in (RequestValidationError, HTTPException, ApiError, ValueError, TypeError, Exception):
        app.add_exception_handler(kind, failed)
    return RequestLog(Guard(app, keys, server.limits.body_bytes), server.metrics, is_json=json_log)
