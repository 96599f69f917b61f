"""The ASGI application: routes, error responses, OpenAPI document, and the guard in front of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from unspool.serve.api_error import ApiError, as_api_error, error_record
from unspool.serve.guard import Guard
from unspool.serve.page.routes import PageContent, add_routes
from unspool.serve.request_log import RequestLog
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
from unspool.serve.responses_api import ResponseObject
from unspool.serve.server import Server

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
