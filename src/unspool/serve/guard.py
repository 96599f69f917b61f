"""Authentication and limits: API keys, body length and time, slow clients, open connections, shutdown.

The guard checks the API key, the body length and the time of the body of every request on every path, except
the key on /health. Without API keys, only requests for a loopback host name are served, which refuses web
pages that point their own name at this machine (DNS rebinding), and only from pages of this server.

waiting for the header of a request   HEADER_SECONDS, from the connection or its first byte
waiting for the body                  BODY_SECONDS
idle between two requests             IDLE_SECONDS
the client does not read              the time limit of a request
open connections                      MAX_CONNECTIONS; further ones are closed at once
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import socket
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from unspool.serve.api_error import ApiError, error_record

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

MAX_PORT = 65_535
LOOPBACK = ("127.0.0.1", "localhost", "::1", "[::1]")
MIN_KEY_LENGTH = 16
BODY_SECONDS = 60.0
LIVENESS = "/health"
"""Answered without a key."""


def read_keys(environment: str, file: Path | None) -> tuple[str, ...]:
    """API keys from a comma-separated string and from the lines of a file; the first is the owner's."""
    lines = [] if file is None else file.read_text(encoding="utf-8").splitlines()
    keys = [key.strip() for key in (*environment.split(","), *lines)]
    given = tuple(key for key in keys if key and not key.startswith("#"))
    for key in given:
        if len(key) < MIN_KEY_LENGTH:
            raise ValueError(f"an API key has {len(key)} characters: use at least {MIN_KEY_LENGTH}")
    return given


def key_name(key: bytes) -> str:
    """The name of an API key in logs: the beginning of its SHA-256 digest."""
    return hashlib.sha256(key).hexdigest()[:12]


class Guard:
    """ASGI middleware that checks the key, the host name, the length and the time of a request."""

    def __init__(
        self, app: App, keys: Sequence[str], body_bytes: int, body_seconds: float = BODY_SECONDS
    ) -> None:
        self._app, self._keys, self._max_bytes = app, [key.encode() for key in keys], body_bytes
        self._body_seconds = body_seconds

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        error = self._check(scope)
        if error is not None:
            await _send_error(send, error)
            return
        read, failed = 0, list[ApiError]()
        end: float | None = asyncio.get_running_loop().time() + self._body_seconds

        async def limited_receive() -> MutableMapping[str, Any]:
            nonlocal read, end
            try:
                async with asyncio.timeout_at(end):
                    message = await receive()
            except TimeoutError:
                failed.append(ApiError(408, f"the body did not arrive within {self._body_seconds:g} s"))
                raise failed[0] from None
            read += len(message.get("body", b""))
            if read > self._max_bytes:
                failed.append(ApiError(413, self._too_long()))
                raise failed[0]
            if not message.get("more_body", False):
                end = None  # afterwards the application waits for a disconnect
            return message

        async def checked_send(message: MutableMapping[str, Any]) -> None:
            if not failed:
                await send(message)
            elif message["type"] == "http.response.start":  # in place of the application's response
                await _send_error(send, failed[0], is_last=True)

        await self._app(scope, limited_receive, checked_send)

    def _check(self, scope: MutableMapping[str, Any]) -> ApiError | None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self._max_bytes:
            return ApiError(413, self._too_long())
        if scope["path"] == LIVENESS:
            return None
        if not self._keys:
            return _check_origin(headers)
        given = headers.get(b"authorization", b"")
        token = given[7:] if given[:7].lower() == b"bearer " else b""
        # Compare with every key, each in constant time.
        matches = [hmac.compare_digest(token, key) for key in self._keys]
        if not any(matches):
            return ApiError(401, "missing or invalid API key: send the header Authorization: Bearer KEY")
        state = scope.setdefault("state", {})
        state["is_owner"] = matches[0]
        if "record" in state:
            state["record"].owner = key_name(token)
        return None

    def _too_long(self) -> str:
        return f"the body is longer than {self._max_bytes:,} bytes, the limit of this server"


def is_owner(scope: Mapping[str, Any]) -> bool:
    """True if a request has the first API key; without keys, everyone on this machine is the owner."""
    return bool(scope.get("state", {}).get("is_owner", True))


def _check_origin(headers: Mapping[bytes, bytes]) -> ApiError | None:
    """Without keys: the error for a request to another host name, or from a page of another site."""
    if not _is_loopback(headers.get(b"host", b"localhost").decode("latin-1")):
        return ApiError(421, "without API keys this server only accepts requests for localhost")
    origin = headers.get(b"origin", b"").decode("latin-1")
    is_foreign = origin and not _is_loopback(urlsplit(origin).netloc if origin != "null" else "null")
    if is_foreign or headers.get(b"sec-fetch-site") == b"cross-site":
        return ApiError(403, "without API keys this server does not accept requests of other web pages")
    return None


def _is_loopback(host: str) -> bool:
    name, _, port = host.lower().rpartition(":")
    return (name if name and port.isdigit() else host.lower()) in LOOPBACK


async def _send_error(send: Send, error: ApiError, *, is_last: bool = False) -> None:
    body = json.dumps(error_record(error)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if is_last:  # the rest of the body is not read
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


HEADER_SECONDS = 20.0
IDLE_SECONDS = 75
MAX_CONNECTIONS = 1024


class TimedProtocol(H11Protocol):
    """HTTP/1.1 with a time limit for headers and for reading, and a limit of connections."""

    header_seconds: ClassVar[float] = HEADER_SECONDS
    read_seconds: ClassVar[float] = 600.0
    """How long a client may leave written bytes unread."""
    max_connections: ClassVar[int] = MAX_CONNECTIONS
    _header_timer: asyncio.TimerHandle | None = None
    _read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.max_connections:
            transport.abort()
        else:
            self._header_timer = self.loop.call_later(self.header_seconds, transport.abort)

    def data_received(self, data: bytes) -> None:
        """End the time limit when a header is complete; start it with the first byte of the next one."""
        if self._is_between_requests() and self._header_timer is None:
            self._header_timer = self.loop.call_later(self.header_seconds, self.transport.abort)
        super().data_received(data)
        if not self._is_between_requests():
            self._header_timer = _cancelled(self._header_timer)

    def pause_writing(self) -> None:
        """The client reads more slowly than the response is written."""
        super().pause_writing()
        self._read_timer = self.loop.call_later(self.read_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._read_timer = _cancelled(self._read_timer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._header_timer, self._read_timer = _cancelled(self._header_timer), _cancelled(self._read_timer)
        super().connection_lost(exc)

    def _is_between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete


def _cancelled(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    if timer is not None:
        timer.cancel()
    return None


def bind(host: str, port: int) -> socket.socket:
    """A socket on this port, which does not accept connections yet; ValueError if the port is taken."""
    if port > MAX_PORT:  # getaddrinfo would take the remainder of 65,536
        raise ValueError(f"port {port} does not exist: give a --port from 0 to {MAX_PORT}")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise ValueError(f"--host {host} is not an address of this machine: {error.strerror}") from None
    listener = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        reason = (error.strerror or "unknown error").lower()
        raise ValueError(f"port {port} of {host}: {reason}; give another --port, or 0 for any") from None
    return listener


class _ReportingServer(uvicorn.Server):
    """Calls `started` once connections are accepted."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._report = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._report()


def serve_until_stopped(
    app: Any, listener: socket.socket, *, read_seconds: float, drain_seconds: int, started: Callable[[], None]
) -> None:
    """Serve the application until Ctrl-C or SIGTERM, and finish running requests for `drain_seconds`."""
    protocol = type("Protocol", (TimedProtocol,), {"read_seconds": read_seconds})
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        log_level="warning",
        access_log=False,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=drain_seconds,
    )
    _ReportingServer(config, started).run([listener])
