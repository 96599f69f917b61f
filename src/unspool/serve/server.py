"""Engines by name, and what each route of OpenAI's API does with them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from fastapi import Request
from fastapi.responses import PlainTextResponse, Response

from unspool.interfaces import Decoder
from unspool.serve.api_error import ApiError
from unspool.serve.guard import Metrics
from unspool.serve.requests import (
    ChatRequest,
    CompletionRequest,
    DecodingFields,
    Limits,
    TokenizeRequest,
    search_of,
)
from unspool.serve.responses import CHAT, COMPLETION
from unspool.serve.scheduler import Engine
from unspool.serve.shared_model import probe
from unspool.serve.streaming import Asked, GrowingAnswer, Running, respond
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
        several = isinstance(body.prompt, list) and not isinstance(body.prompt[0], int)
        self._bound(count * (len(body.prompt) if several else 1))
        options = self._options(body, body.max_tokens, count, body.logprobs)
        scored = (body.logprobs or 0) if body.echo and body.logprobs is not None else None
        asked = Asked(body.prompt, _search(body), options, scored)
        running = self._run(body, asked)
        answer = GrowingAnswer(
            COMPLETION, body, self.engine(body.model).model.tokenizer, body.logprobs, echo=body.echo
        )
        return await respond(answer, running, request, self.metrics)

    async def chat(self, body: ChatRequest, request: Request) -> Response:
        """POST /v1/chat/completions."""
        self._bound(body.n)
        if body.top_logprobs and not body.logprobs:
            raise ApiError(400, "top_logprobs needs logprobs: true", "top_logprobs")
        longest = body.max_completion_tokens or body.max_tokens or LONGEST_ANSWER
        options = self._options(body, longest, body.n, body.top_logprobs)
        messages = [{"role": it.role, "content": it.content} for it in body.messages]
        running = self._run(body, Asked([messages], _search(body), options))
        told = body.top_logprobs if body.logprobs else None
        answer = GrowingAnswer(CHAT, body, self.engine(body.model).model.tokenizer, told)
        return await respond(answer, running, request, self.metrics)

    async def tokenize(self, body: TokenizeRequest) -> dict[str, Any]:
        """POST /tokenize."""
        model = self.engine(body.model or next(iter(self.engines))).model
        if model.tokenizer is None:
            raise ApiError(400, "this model has no tokenizer")
        ids = await asyncio.to_thread(model.tokenizer.encode, body.prompt)
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
        for engine in self.engines.values():
            for name, count in asdict(engine.counts).items():
                gauges[f"engine_{name}"] = gauges.get(f"engine_{name}", 0) + count
        for name in ("read", "shared"):
            counts = [getattr(engine.batch, f"{name}_tokens") for engine in self.engines.values()]
            gauges[f"prompt_tokens_{name}"] = sum(counts)
        return PlainTextResponse(self.metrics.text(gauges), media_type="text/plain; version=0.0.4")

    def _bound(self, rows: int) -> None:
        if rows > self.limits.rows:
            raise ApiError(400, f"{rows} texts are asked for, and a request may have {self.limits.rows}", "n")

    def _options(self, body: DecodingFields, new: int, n: int, alternatives: int | None) -> dict[str, Any]:
        on_loop = "stop" if body.stop_loops else "ignore"
        return {
            "max_new_tokens": new,
            "n": n,
            "seed": body.seed,
            "stop": body.stop,
            "stop_ids": body.stop_token_ids or (),
            "on_loop": "stop_approximate" if body.stop_approximate_loops else on_loop,
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


def _search(body: DecodingFields) -> Decoder:
    try:
        return search_of(body)
    except (ValueError, TypeError, ModuleNotFoundError) as error:
        raise ApiError(400, str(error)) from error


def _probe(engine: Engine) -> None:
    with engine.open(time.monotonic() + PROBE_SECONDS) as model:
        probe(model)
