"""The OpenAPI document of the server."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI


def described(app: FastAPI) -> dict[str, Any]:
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
