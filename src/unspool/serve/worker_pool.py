"""Limit concurrent and queued requests; reply 429 with Retry-After beyond that."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from unspool.serve.api_error import ApiError


@dataclass(eq=False)
class Ticket:
    """The place of a request in the queue."""

    work: Callable[[], None]
    owner: str = ""


class WorkerPool:
    """`slots` threads that run requests, and a queue of at most `queue` waiting ones.

    If `per_owner` is not None, each owner (API key) has at most so many requests, waiting ones included.
    """

    def __init__(self, slots: int = 32, queue: int = 128, per_owner: int | None = None) -> None:
        self.slots, self.queue, self.per_owner = slots, queue, per_owner
        self._change = threading.Condition()
        self._waiting: deque[Ticket] = deque()
        self._owners: Counter[str] = Counter()
        self._threads: list[threading.Thread] = []
        self._running = 0
        self.is_closed = False
        """Whether new requests are refused, because the server is closing."""
        self._mean_seconds = 1.0
        """Moving average of the time per request."""

    @property
    def running(self) -> int:
        """Requests that are running."""
        return self._running

    @property
    def waiting(self) -> int:
        """Requests that are queued."""
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether the next request is refused."""
        return self._running + len(self._waiting) >= self.slots + self.queue

    def submit(self, work: Callable[[], None], owner: str = "") -> Ticket:
        """Run the work when a slot is free; raises an ApiError if the queue is full."""
        with self._change:
            if self.is_closed:
                raise ApiError(503, "the server is closing")
            if self.is_full:
                raise self._refusal("the queue is full", "queue_full")
            if self.per_owner is not None and self._owners[owner] >= self.per_owner:
                message = f"this API key has {self.per_owner} requests already, which is its limit"
                raise self._refusal(message, "key_limit")
            ticket = Ticket(work, owner)
            self._waiting.append(ticket)
            self._owners[owner] += 1
            if self._running + len(self._waiting) > len(self._threads) < self.slots:
                thread = threading.Thread(target=self._work, name="unspool-request", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._change.notify()
        return ticket

    def withdraw(self, ticket: Ticket) -> bool:
        """Remove a request from the queue; False if it has left the queue already."""
        with self._change:
            if ticket not in self._waiting:
                return False
            self._waiting.remove(ticket)
            self._leave(ticket)
            return True

    def close(self, seconds: float | None = None) -> None:
        """Wait until all requests are finished, or for some seconds."""
        with self._change:
            self.is_closed = True
            self._change.notify_all()
        end = None if seconds is None else time.monotonic() + seconds
        for thread in self._threads:
            thread.join(None if end is None else max(0.0, end - time.monotonic()))

    def _refusal(self, message: str, code: str) -> ApiError:
        ahead = (self._running + len(self._waiting)) / self.slots
        seconds = max(1, min(60, math.ceil(ahead * self._mean_seconds)))
        headers = {"Retry-After": str(seconds)}
        return ApiError(429, f"{message}: try again in {seconds} s", code=code, headers=headers)

    def _work(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._waiting or self.is_closed)
                if not self._waiting:
                    return
                ticket = self._waiting.popleft()
                self._running += 1
            began = time.monotonic()
            try:
                ticket.work()
            finally:
                with self._change:
                    self._running -= 1
                    self._leave(ticket)
                    self._mean_seconds += 0.1 * (time.monotonic() - began - self._mean_seconds)
            del ticket  # it holds the body of the request

    def _leave(self, ticket: Ticket) -> None:
        self._owners[ticket.owner] -= 1
        if not self._owners[ticket.owner]:
            del self._owners[ticket.owner]
