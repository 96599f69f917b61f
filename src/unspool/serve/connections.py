"""Connections: the port, time limits for clients that send or read nothing, and the end of the server.

waiting for the header of a request   HEADER_SECONDS, from the connection or its first byte
waiting for the body                  guard.BODY_SECONDS
idle between two requests             IDLE_SECONDS
the client does not read              the time limit of a request
open connections                      MAX_CONNECTIONS; further ones are closed at once
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Any, ClassVar

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

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
        """Start the time limit of the first header."""
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
        """The client has read enough."""
        super().resume_writing()
        self._read_timer = _cancelled(self._read_timer)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timers."""
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
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
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
