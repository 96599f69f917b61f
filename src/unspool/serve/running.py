"""A request between two worlds: a search in a thread, and the asynchronous handler that sends its pieces."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

from unspool.decode.output import Piece
from unspool.serve.api_error import ApiError
from unspool.serve.engine import Engine
from unspool.serve.generation import Asked, Begun, generate
from unspool.serve.limits import Limits
from unspool.serve.shared_model import GivenUp
from unspool.serve.worker_pool import WorkerPool

log = logging.getLogger("unspool.serve")
END = object()


class Running:
    """One request's work; what it tells comes out of `begun` and `pieces`."""

    def __init__(self, engine: Engine, pool: WorkerPool, asked: Asked, limits: Limits) -> None:
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[Any] = asyncio.Queue()
        self._asked, self._limits = asked, limits
        self._stopped = False
        self._lock = threading.Lock()
        self._model: Any = None
        self._engine, self._deadline = engine, time.monotonic() + limits.seconds
        pool.submit(self._work)

    async def begun(self) -> Begun:
        """Wait until all has been checked; raises what was found wrong."""
        event: Begun = await self._next()
        return event

    async def pieces(self) -> AsyncIterator[Piece]:
        """Pieces as they come; raises what went wrong."""
        while (event := await self._next()) is not END:
            yield event

    def stop(self) -> None:
        """Nobody listens any more: the search ends where it waits, and its rows leave the batch."""
        with self._lock:
            self._stopped = True
            model = self._model
        if model is not None:
            model.stop(GivenUp())

    async def _next(self) -> Any:
        event = await self._events.get()
        if isinstance(event, BaseException):
            raise event
        return event

    def _tell(self, event: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    def _work(self) -> None:
        with self._lock:
            if self._stopped:
                return
            self._model = self._engine.open(self._deadline)
        with self._model:
            try:
                generate(self._model, self._asked, self._limits, self._tell)
                self._tell(END)
            except GivenUp as error:
                self._tell(error)
            except ValueError as error:  # such as a TopK that is larger than the vocabulary
                failed = self._model.failed
                self._tell(
                    ApiError(500, str(error), code="model_failed") if failed else ApiError(400, str(error))
                )
            except Exception as error:
                log.info("a request failed", exc_info=True)
                self._tell(error)
