"""Ctrl-C and SIGTERM ask a run to stop after its update; once more, and it stops at once.

Whoever starts several processes may send the same signal that the terminal has sent them already (torchrun
does): what follows the first within a moment is taken for the first.
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
"""Seconds."""


class StopRequest:
    """Whether the run was asked to stop, and by which signal."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __call__(self) -> bool:
        """Whether it was."""
        return self.signal is not None


@contextmanager
def catch_stop_signals() -> Iterator[StopRequest]:
    """Take note of the signals instead of dying by them. Only the main thread of a program receives any."""
    asked = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before: dict[int, Any] = {}

    first = math.inf

    def note(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        nonlocal first
        if asked.signal is None:
            asked.signal, first = number, time.monotonic()
        elif time.monotonic() - first > REPEAT_SECONDS:
            for it, handler in before.items():
                signal.signal(it, handler)
            os.kill(os.getpid(), number)

    for number in SIGNALS:
        before[number] = signal.signal(number, note)
    try:
        yield asked
    finally:
        for it, handler in before.items():
            signal.signal(it, handler)
