"""Authentication and limits for every route.

The guard checks the API key, the body length and the time of the body of every request on every path, except
the key on /health. Without API keys, only requests for a loopback host name are served, which refuses web
pages that point their own name at this machine (DNS rebinding), and only from pages of this server.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from unspool.serve.api_error import ApiError, error_record

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

LOOPBACK = ("127.0.0.1", "localhost", "::1", "[::1]")
MIN_KEY_LENGTH = 16
BODY_SECONDS = 60.0
"""Time limit for the body of a request."""
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
        """Pass the request to the application, or send an error."""
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
    """Whether a request has the first API key; without keys, everyone on this machine is the owner."""
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
