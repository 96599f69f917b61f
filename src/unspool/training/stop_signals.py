"""Ctrl-C and SIGTERM stop a run after its current update; a second signal stops it at once.

torchrun repeats a signal that the terminal already sent to its processes: repetitions within REPEAT_SECONDS
count as one signal.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
REPEAT_SECONDS = 1.0


class StopRequest:
    """A request to stop the run; calling it returns True after a signal."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __call__(self) -> bool:
        """Return True if a signal arrived."""
        return self.signal is not None


@contextmanager
def catch_stop_signals() -> Iterator[StopRequest]:
    """Record SIGINT and SIGTERM instead of stopping at once; only the main thread receives signals."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before: dict[int, Any] = {}

    first = math.inf

    def note(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        nonlocal first
        if request.signal is None:
            request.signal, first = number, time.monotonic()
        elif time.monotonic() - first > REPEAT_SECONDS:
            for it, handler in before.items():
                signal.signal(it, handler)
            os.kill(os.getpid(), number)

    for number in SIGNALS:
        before[number] = signal.signal(number, note)
    try:
        yield request
    finally:
        for it, handler in before.items():
            signal.signal(it, handler)
