"""Limit concurrent and queued requests; reply 429 with Retry-After beyond that."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from unspool.serve.api_error import ApiError


class WorkerPool:
    """`slots` threads that run requests, and a queue of at most `queue` waiting ones."""

    def __init__(self, slots: int = 32, queue: int = 128) -> None:
        self.slots, self.queue = slots, queue
        self._threads = ThreadPoolExecutor(slots, thread_name_prefix="unspool-request")
        self._lock = threading.Lock()
        self._accepted = self._running = 0
        self._mean_seconds = 1.0
        """Moving average of the time per request."""

    @property
    def running(self) -> int:
        """Requests that are running."""
        return self._running

    @property
    def waiting(self) -> int:
        """Requests that are queued."""
        return self._accepted - self._running

    def submit(self, work: Callable[[], None]) -> None:
        """Run the work when a slot is free; raises an ApiError if the queue is full."""
        with self._lock:
            if self._accepted >= self.slots + self.queue:
                seconds = max(1, min(60, math.ceil(self._accepted / self.slots * self._mean_seconds)))
                message = f"the queue is full: try again in {seconds} s"
                raise ApiError(429, message, code="queue_full", headers={"Retry-After": str(seconds)})
            self._accepted += 1
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
                self._accepted -= 1
                self._mean_seconds += 0.1 * (time.monotonic() - began - self._mean_seconds)

    def close(self) -> None:
        """Wait for running requests."""
        self._threads.shutdown()
