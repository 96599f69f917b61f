"""Authentication and limits for every route, and Prometheus metrics.

The guard checks the API key and the body length of every request on every path. Without API keys,
only requests for a loopback host name are served, which refuses web pages that point their own name at this
machine (DNS rebinding).
"""

from __future__ import annotations

import hmac
import json
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

from unspool.serve.api_error import ApiError, error_record

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

LOOPBACK = ("127.0.0.1", "localhost", "::1", "[::1]")
MIN_KEY_LENGTH = 16


def read_keys(environment: str, file: Path | None) -> tuple[str, ...]:
    """API keys from a comma-separated string and from the lines of a file."""
    lines = [] if file is None else file.read_text(encoding="utf-8").splitlines()
    keys = [key.strip() for key in (*environment.split(","), *lines)]
    given = tuple(key for key in keys if key and not key.startswith("#"))
    for key in given:
        if len(key) < MIN_KEY_LENGTH:
            raise ValueError(f"an API key has {len(key)} characters: use at least {MIN_KEY_LENGTH}")
    return given


class Guard:
    """ASGI middleware that checks the key, the host name and the length of a request."""

    def __init__(self, app: App, keys: Sequence[str], body_bytes: int) -> None:
        self._app, self._keys, self._max_bytes = app, [key.encode() for key in keys], body_bytes

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Pass the request to the application, or send an error."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        headers = dict(scope["headers"])
        error = self._check(headers)
        if error is not None:
            await _send_error(send, error)
            return
        read, too_long = 0, False

        async def limited_receive() -> MutableMapping[str, Any]:
            nonlocal read, too_long
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._max_bytes:
                too_long = True
                raise ApiError(413, self._too_long())
            return message

        async def checked_send(message: MutableMapping[str, Any]) -> None:
            if not too_long:
                await send(message)
            elif message["type"] == "http.response.start":  # in place of the application's response
                await _send_error(send, ApiError(413, self._too_long()))

        await self._app(scope, limited_receive, checked_send)

    def _check(self, headers: dict[bytes, bytes]) -> ApiError | None:
        given = headers.get(b"authorization", b"")
        token = given[7:] if given[:7].lower() == b"bearer " else b""
        # Compare with every key, each in constant time.
        if self._keys and not sum(hmac.compare_digest(token, key) for key in self._keys):
            return ApiError(401, "missing or invalid API key: send the header Authorization: Bearer KEY")
        if not self._keys and not _is_loopback(headers.get(b"host", b"localhost")):
            return ApiError(421, "without API keys this server only accepts requests for localhost")
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self._max_bytes:
            return ApiError(413, self._too_long())
        return None

    def _too_long(self) -> str:
        return f"the body is longer than {self._max_bytes:,} bytes, the limit of this server"


def _is_loopback(host: bytes) -> bool:
    name, _, port = host.decode("latin-1").lower().rpartition(":")
    return (name if name and port.isdigit() else host.decode("latin-1").lower()) in LOOPBACK


async def _send_error(send: Send, error: ApiError) -> None:
    body = json.dumps(error_record(error)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Metrics:
    """Counters since the start of the server, in the format of Prometheus."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: defaultdict[tuple[str, str], float] = defaultdict(float)

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Increase a counter."""
        label = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
        with self._lock:
            self._counts[name, label] += amount

    def text(self, gauges: Mapping[str, float]) -> str:
        """All counters and these gauges, in the text format 0.0.4."""
        with self._lock:
            counts = sorted(self._counts.items())
        lines: list[str] = []
        for (name, labels), amount in counts:
            if not lines or not lines[-1].startswith(f"unspool_{name}_total"):
                lines.append(f"# TYPE unspool_{name}_total counter")
            lines.append(f"unspool_{name}_total{{{labels}}} {amount:g}")
        for gauge, value in sorted(gauges.items()):
            lines += [f"# TYPE unspool_{gauge} gauge", f"unspool_{gauge} {value:g}"]
        return "\n".join(lines) + "\n"
