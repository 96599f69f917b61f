"""The OpenAPI document of the server: what each route takes, and what it answers."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from unspool.serve.answer_fields import Refusal

Responses = dict[int | str, dict[str, Any]]
REFUSED: Responses = {"default": {"model": Refusal, "description": "What was wrong"}}
"""Whatever is not 200 is told as OpenAI tells it; FastAPI then writes nothing of its 422."""


def streamed(whole: type[BaseModel]) -> Responses:
    """What a route answers whose answers come whole, or as server-sent events."""
    events = {"text/event-stream": {"schema": {"type": "string"}}}
    return {200: {"model": whole, "description": "The answer, or its parts", "content": events}}
