"""One question of the page: a function of the shared model, run by a worker, given up when nobody waits."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

from fastapi import Request

from unspool.serve.api_error import ApiError
from unspool.serve.engine import Engine
from unspool.serve.shared_model import GivenUp, SharedModel
from unspool.serve.worker_pool import WorkerPool

SECONDS = 60.0
"""A page that has waited for longer has been closed."""


class Question:
    """Asked when it is made; `answer` waits."""

    def __init__(
        self, engine: Engine, pool: WorkerPool, work: Callable[[SharedModel], Any], seconds: float = SECONDS
    ) -> None:
        self._engine, self._work, self._deadline = engine, work, time.monotonic() + seconds
        self._loop = asyncio.get_running_loop()
        self._found: asyncio.Future[Any] = self._loop.create_future()
        self._lock, self._stopped = threading.Lock(), False
        self._model: SharedModel | None = None
        pool.submit(self._run)

    async def answer(self, request: Request) -> Any:
        """What the function gives; raises what went wrong. It is stopped when the client goes away."""
        gone = asyncio.create_task(self._watch(request))
        try:
            return await self._found
        except GivenUp as error:
            raise ApiError(503, "this question was given up") from error
        finally:
            gone.cancel()
            self.stop()

    def stop(self) -> None:
        """Nobody waits any more."""
        with self._lock:
            self._stopped, model = True, self._model
        if model is not None:
            model.stop(GivenUp())

    async def _watch(self, request: Request) -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        self.stop()

    def _run(self) -> None:
        with self._lock:
            if self._stopped:
                self._tell(None, GivenUp())
                return
            self._model = model = self._engine.open(self._deadline)
        with model:
            try:
                found = self._work(model)
            except Exception as error:
                self._tell(None, error)
            else:
                self._tell(found, None)

    def _tell(self, found: Any, error: Exception | None) -> None:
        def settle() -> None:
            if self._found.done():
                return
            if error is None:
                self._found.set_result(found)
            else:
                self._found.set_exception(error)

        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(settle)
