"""How an answer is sent: as one JSON object, or as server-sent events while it is written."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from unspool.decode.output import Piece
from unspool.serve.answers import usage
from unspool.serve.api_error import error_record, told
from unspool.serve.generation import Begun
from unspool.serve.growing_answer import GrowingAnswer
from unspool.serve.metrics import Metrics
from unspool.serve.running import Running


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
