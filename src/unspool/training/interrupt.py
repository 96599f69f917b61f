"""Ctrl-C and SIGTERM ask a run to stop after its update; a second Ctrl-C or SIGTERM stops it at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Asked:
    """Whether the run was asked to stop, and by which signal."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __call__(self) -> bool:
        """Whether it was."""
        return self.signal is not None


@contextmanager
def interruptible() -> Iterator[Asked]:
    """Take note of the signals instead of dying by them. Only the main thread of a program receives any."""
    asked = Asked()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before: dict[int, Any] = {}

    def note(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        asked.signal = number
        for it, handler in before.items():
            signal.signal(it, handler)

    for number in SIGNALS:
        before[number] = signal.signal(number, note)
    try:
        yield asked
    finally:
        for it, handler in before.items():
            signal.signal(it, handler)
