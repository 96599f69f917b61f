"""The handlers of OpenAI's API: completions, chat completions, models, tokenize, health, metrics."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from fastapi import Request
from fastapi.responses import PlainTextResponse, Response

from unspool.config import suggest
from unspool.serve.api_error import ApiError
from unspool.serve.guard import Metrics
from unspool.serve.requests import (
    ChatRequest,
    CompletionRequest,
    DecodingFields,
    Limits,
    TokenizeRequest,
    decoder_of,
)
from unspool.serve.responses import ChatBuilder, CompletionBuilder
from unspool.serve.scheduler import Scheduler
from unspool.serve.streaming import ModelTask, generate, respond
from unspool.serve.worker_pool import WorkerPool

UNLIMITED_TOKENS = 1 << 30
"""max_new_tokens of a chat without a limit: generation ends at the context length."""


class Server:
    """Schedulers by model name, the worker threads, and the handlers of the routes."""

    def __init__(self, schedulers: Mapping[str, Scheduler], pool: WorkerPool, limits: Limits) -> None:
        self.schedulers, self.pool, self.limits = dict(schedulers), pool, limits
        self.metrics, self._since = Metrics(), int(time.time())

    def scheduler(self, name: str) -> Scheduler:
        """The scheduler of a model; 404 if it is not served."""
        if name not in self.schedulers:
            message = f"model {name!r:.80} is not served: {suggest(name, self.schedulers)}"
            raise ApiError(404, message, "model")
        return self.schedulers[name]

    async def models(self) -> dict[str, Any]:
        """GET /v1/models."""
        return {"object": "list", "data": [await self.model(name) for name in self.schedulers]}

    async def model(self, name: str) -> dict[str, Any]:
        """GET /v1/models/{name}."""
        model = self.scheduler(name).model
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
            raise ApiError(
                400, "best_of cannot be streamed: the best text is known only at the end", "best_of"
            )
        if body.max_tokens == 0 and not body.echo:
            raise ApiError(400, "max_tokens=0 needs echo: true", "max_tokens")
        is_batch = isinstance(body.prompt, list) and not isinstance(body.prompt[0], int)
        self._check_rows(count * (len(body.prompt) if is_batch else 1))
        options = self._options(body, body.max_tokens, count, body.logprobs)
        scored = (body.logprobs or 0) if body.echo and body.logprobs is not None else None
        task = self._start(body, body.prompt, options, scored)
        tokenizer = self.scheduler(body.model).model.tokenizer
        builder = CompletionBuilder(body, tokenizer, body.logprobs, echo=body.echo)
        return await respond(builder, task, request, self.metrics)

    async def chat(self, body: ChatRequest, request: Request) -> Response:
        """POST /v1/chat/completions."""
        self._check_rows(body.n)
        if body.top_logprobs and not body.logprobs:
            raise ApiError(400, "top_logprobs needs logprobs: true", "top_logprobs")
        max_tokens = body.max_completion_tokens or body.max_tokens or UNLIMITED_TOKENS
        options = self._options(body, max_tokens, body.n, body.top_logprobs)
        messages = [{"role": it.role, "content": it.content} for it in body.messages]
        task = self._start(body, [messages], options)
        alternatives = body.top_logprobs if body.logprobs else None
        builder = ChatBuilder(body, self.scheduler(body.model).model.tokenizer, alternatives)
        return await respond(builder, task, request, self.metrics)

    async def tokenize(self, body: TokenizeRequest) -> dict[str, Any]:
        """POST /tokenize."""
        model = self.scheduler(body.model or next(iter(self.schedulers))).model
        if model.tokenizer is None:
            raise ApiError(400, "this model does not have a tokenizer")
        ids = await asyncio.to_thread(model.tokenizer.encode, body.prompt)
        return {"count": len(ids), "max_model_len": model.context, "tokens": ids}

    async def health(self) -> dict[str, Any]:
        """GET /health: every model reads one token."""
        for name, scheduler in self.schedulers.items():
            try:
                await asyncio.to_thread(scheduler.probe)
            except Exception as error:
                raise ApiError(503, f"{name} does not respond ({type(error).__name__})") from error
        return {"status": "ok", "models": list(self.schedulers)}

    async def prometheus(self) -> PlainTextResponse:
        """GET /metrics."""
        gauges: dict[str, float] = {
            "requests_running": self.pool.running,
            "requests_waiting": self.pool.waiting,
        }
        for scheduler in self.schedulers.values():
            for name, count in scheduler.counts.items():
                gauges[f"engine_{name}"] = gauges.get(f"engine_{name}", 0) + count
        for name in ("read", "shared"):
            counts = [getattr(it.batch, f"{name}_tokens") for it in self.schedulers.values()]
            gauges[f"prompt_tokens_{name}"] = sum(counts)
        return PlainTextResponse(self.metrics.text(gauges), media_type="text/plain; version=0.0.4")

    def _check_rows(self, rows: int) -> None:
        if rows > self.limits.rows:
            raise ApiError(400, f"{rows} texts are more than {self.limits.rows}, the limit per request", "n")

    def _options(
        self, body: DecodingFields, max_tokens: int, n: int, alternatives: int | None
    ) -> dict[str, Any]:
        on_loop = "stop" if body.stop_loops else "ignore"
        return {
            "max_new_tokens": max_tokens,
            "n": n,
            "seed": body.seed,
            "stop": body.stop,
            "stop_ids": body.stop_token_ids or (),
            "on_loop": "stop_approximate" if body.stop_approximate_loops else on_loop,
            "alternatives": alternatives or 0,
            "batch_size": self.limits.width,
        }

    def _start(
        self, body: DecodingFields, prompts: Any, options: dict[str, Any], score_prompts: int | None = None
    ) -> ModelTask:
        scheduler = self.scheduler(body.model)
        size = scheduler.model.vocab_size
        outside = [token for token in body.logit_bias or () if token >= size]
        if outside:
            message = f"logit_bias contains token {outside[0]}, outside the vocabulary 0…{size - 1}"
            raise ApiError(400, message, "logit_bias")
        try:
            decoder = decoder_of(body)
        except (ValueError, TypeError, ModuleNotFoundError) as error:
            raise ApiError(400, str(error)) from error
        work = partial(
            generate,
            prompts=prompts,
            decoder=decoder,
            options=options,
            limits=self.limits,
            score_prompts=score_prompts,
        )
        return ModelTask(scheduler, self.pool, work, self.limits.seconds)
