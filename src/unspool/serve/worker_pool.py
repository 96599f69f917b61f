"""So many requests run at once, so many wait, and whoever comes then is told when to come again."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from unspool.serve.api_error import ApiError


class QueueFull(ApiError):  # noqa: N818 — named after what is the case
    """No place is free, not even for waiting."""

    def __init__(self, seconds: int) -> None:
        message = f"the queue is full: try again in {seconds} s"
        super().__init__(429, message, code="queue_full", headers={"Retry-After": str(seconds)})
        self.seconds = seconds


class WorkerPool:
    """Threads that run searches; `slots` of them, with `queue` requests behind them at most."""

    def __init__(self, slots: int = 32, queue: int = 128) -> None:
        self.slots, self.queue = slots, queue
        self._threads = ThreadPoolExecutor(slots, thread_name_prefix="unspool-request")
        self._lock = threading.Lock()
        self._inside = self._running = 0
        self._seconds = 1.0
        """What a request takes, as a moving mean."""

    @property
    def running(self) -> int:
        """Requests that have a thread."""
        return self._running

    @property
    def waiting(self) -> int:
        """Requests that wait for one."""
        return self._inside - self._running

    def submit(self, work: Callable[[], None]) -> None:
        """Have the work done as soon as there is a thread; QueueFull where nothing more may wait."""
        with self._lock:
            if self._inside >= self.slots + self.queue:
                ahead = self._inside / self.slots
                raise QueueFull(max(1, min(60, math.ceil(ahead * self._seconds))))
            self._inside += 1
        self._threads.submit(self._run, work)

    def _run(self, work: Callable[[], None]) -> None:
        with self._lock:
            self._running += 1
        began = time.monotonic()
        try:
            work()
        finally:
            with self._lock:
                self._running -= 1
                self._inside -= 1
                self._seconds += 0.1 * (time.monotonic() - began - self._seconds)

    def close(self) -> None:
        """Wait for all that runs."""
        self._threads.shutdown()
