"""The ASGI application: routes, what a client is told of errors, and the guard before all of it."""

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

from unspool.serve.api_error import ApiError, error_record, invalid_fields, told
from unspool.serve.guard import Guard
from unspool.serve.page.routes import NOTHING, Exhibits, add_routes
from unspool.serve.responses import ChatCompletion, Completion, Health, ModelFacts, ModelList, Refusal, Tokens
from unspool.serve.server import Server

# The OpenAPI document of the server: what each route takes, and what it answers.


Responses = dict[int | str, dict[str, Any]]
REFUSED: Responses = {"default": {"model": Refusal, "description": "What was wrong"}}
"""Whatever is not 200 is told as OpenAI tells it; FastAPI then writes nothing of its 422."""


def streamed(whole: type[BaseModel]) -> Responses:
    """What a route answers whose answers come whole, or as server-sent events."""
    events = {"text/event-stream": {"schema": {"type": "string"}}}
    return {200: {"model": whole, "description": "The answer, or its parts", "content": events}}


def create_app(server: Server, keys: Sequence[str] = (), exhibits: Exhibits = NOTHING) -> Guard:
    """The ASGI application: the guard, and the routes behind it."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        for engine in server.engines.values():
            await asyncio.to_thread(engine.close)

    app = FastAPI(title="unspool", docs_url=None, redoc_url=None, lifespan=lifespan, responses=REFUSED)
    app.get("/v1/models", response_model=ModelList)(server.models)
    app.get("/v1/models/{name:path}", response_model=ModelFacts)(server.model)
    app.post("/v1/completions", response_model=None, responses=streamed(Completion))(server.completions)
    app.post("/v1/chat/completions", response_model=None, responses=streamed(ChatCompletion))(server.chat)
    app.post("/tokenize", response_model=Tokens)(server.tokenize)
    app.get("/health", response_model=Health)(server.health)
    app.get("/metrics", response_class=PlainTextResponse)(server.counted)
    add_routes(app, server, exhibits)

    async def failed(request: Request, error: Exception) -> JSONResponse:
        found = told(error, begun=False)
        server.metrics.add("requests", path=_route(request), status=str(found.status))
        return JSONResponse(error_record(found), found.status, found.headers)

    async def invalid(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        return await failed(request, invalid_fields(error.errors()))

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


def _route(request: Request) -> str:
    """The route's own path: what a client wrote is no label."""
    route = request.scope.get("route")
    return getattr(route, "path", "unknown")
