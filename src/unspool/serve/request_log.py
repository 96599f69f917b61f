"""ASGI middleware: request ids, a log line per request, counters, and the warning about ignored fields."""

from __future__ import annotations

import json
import logging
import re
import secrets
import time
from collections.abc import MutableMapping
from datetime import UTC, datetime
from typing import Any

from unspool.serve.guard import App, Receive, Send
from unspool.serve.metrics import Metrics, RequestRecord
from unspool.serve.request_base import field_warning

log = logging.getLogger("unspool.serve.access")
CLIENT_ID = re.compile(rb"[\w.:-]{1,64}")
"""The ids that a client may choose for its requests."""


class RequestLog:
    """Records every request. `is_json` writes one JSON object per line instead of text."""

    def __init__(self, app: App, metrics: Metrics, *, is_json: bool = False) -> None:
        self.app, self._metrics, self._is_json = app, metrics, is_json

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Pass the request on, and record its status and duration."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = dict(scope["headers"]).get(b"x-request-id", b"")
        record = RequestRecord(given.decode() if CLIENT_ID.fullmatch(given) else secrets.token_hex(12))
        scope.setdefault("state", {})["record"] = record
        status = 499  # as nginx: the client left before a response

        async def recording_send(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message.get("headers", ()), (b"x-request-id", record.id.encode())]
                if record.warnings:
                    headers.append((b"warning", field_warning(record.warnings).encode()))
                message = {**message, "headers": headers}
            await send(message)

        try:
            await self.app(scope, receive, recording_send)
        finally:
            self._finish(scope, record, status)

    def _finish(self, scope: MutableMapping[str, Any], record: RequestRecord, status: int) -> None:
        # The pattern of the route: a path that a client invents must not become a label.
        route = getattr(scope.get("route"), "path", "unknown")
        seconds = time.monotonic() - record.began
        self._metrics.add("requests", path=route, status=str(status), model=record.model)
        if record.prompt_tokens:
            self._metrics.observe("request_seconds", seconds, model=record.model)
            self._metrics.observe("request_prompt_tokens", record.prompt_tokens, model=record.model)
            self._metrics.observe("request_generated_tokens", record.generated_tokens, model=record.model)
            self._metrics.add("prompt_tokens", record.prompt_tokens, model=record.model)
        fields = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "request_id": record.id,
            "method": scope["method"],
            "path": scope["path"][:200],
            "status": status,
            "seconds": round(seconds, 4),
            "key": record.owner,
            "model": record.model,
            "prompt_tokens": record.prompt_tokens,
            "cached_tokens": record.cached_tokens,
            "generated_tokens": record.generated_tokens,
            **{f"{name}_seconds": round(value, 4) for name, value in record.times.items()},
            "ignored": record.warnings[:10],
        }
        known = {name: value for name, value in fields.items() if value not in ("", 0, [])}
        if self._is_json:
            log.info(json.dumps(known))
        else:
            log.info(" ".join(f"{name}={value!r}" for name, value in known.items()))


def record_of(request: Any) -> RequestRecord:
    """The record of a request; a new one if there is no log."""
    state = {} if request is None else request.scope.get("state", {})
    record: RequestRecord = state.get("record") or RequestRecord()
    return record
