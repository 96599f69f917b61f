"""What stands before every route: keys are asked for, and no body is longer than allowed.

A route that nobody has thought of is denied like all others: the guard does not look at paths. Where there
are no keys, only this machine is served, and whoever asks must ask for it by one of its own names: a page of
the web whose name was made to lead here (DNS rebinding) is refused.
"""

from __future__ import annotations

import hmac
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

from unspool.serve.api_error import ApiError, error_body

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

LOOPBACK = ("127.0.0.1", "localhost", "::1", "[::1]")
SHORTEST_KEY = 16


def read_keys(environment: str, file: Path | None) -> tuple[str, ...]:
    """API keys: those of the environment, separated by commas, and those of a file, one in a line."""
    lines = [] if file is None else file.read_text(encoding="utf-8").splitlines()
    keys = [key.strip() for key in (*environment.split(","), *lines)]
    found = tuple(key for key in keys if key and not key.startswith("#"))
    for key in found:
        if len(key) < SHORTEST_KEY:
            raise ValueError(f"an API key has {len(key)} characters: give at least {SHORTEST_KEY}")
    return found


class Guard:
    """An ASGI application behind which another stands."""

    def __init__(self, app: App, keys: Sequence[str], body_bytes: int) -> None:
        self._app, self._keys, self._most = app, [key.encode() for key in keys], body_bytes

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Let through what has a key and is not too long."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        headers = dict(scope["headers"])
        refused = self._refusal(headers)
        if refused is not None:
            await _answer(send, refused)
            return
        read, too_long = 0, False

        async def counted() -> MutableMapping[str, Any]:
            nonlocal read, too_long
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._most:
                too_long = True
                raise ApiError(413, self._too_long())
            return message

        async def answered(message: MutableMapping[str, Any]) -> None:
            if not too_long:
                await send(message)
            elif message["type"] == "http.response.start":  # whatever the application made of that
                await _answer(send, ApiError(413, self._too_long()))

        await self._app(scope, counted, answered)

    def _refusal(self, headers: dict[bytes, bytes]) -> ApiError | None:
        given = headers.get(b"authorization", b"")
        token = given[7:] if given[:7].lower() == b"bearer " else b""
        # Every key is compared, and each in constant time.
        if self._keys and not sum(hmac.compare_digest(token, key) for key in self._keys):
            return ApiError(401, "no valid API key was given: send Authorization: Bearer KEY")
        if not self._keys and not _names_this_machine(headers.get(b"host", b"localhost")):
            return ApiError(421, "without API keys this server is for this machine: ask for localhost")
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self._most:
            return ApiError(413, self._too_long())
        return None

    def _too_long(self) -> str:
        return f"the body is longer than the {self._most:,} bytes that this server reads"


def _names_this_machine(host: bytes) -> bool:
    name, _, port = host.decode("latin-1").lower().rpartition(":")
    return (name if name and port.isdigit() else host.decode("latin-1").lower()) in LOOPBACK


async def _answer(send: Send, error: ApiError) -> None:
    body = error_body(error)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


# Counters as Prometheus reads them.


class Metrics:
    """What was counted since the server began."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: defaultdict[tuple[str, str], float] = defaultdict(float)

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Count something."""
        written = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
        with self._lock:
            self._counts[name, written] += amount

    def text(self, gauges: Mapping[str, float]) -> str:
        """All counters, and what is the case just now, in the text format 0.0.4."""
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
