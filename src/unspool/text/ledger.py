"""Keeps account of what a chat template makes, and of its time.

    weight(text) = its length
    weight(list) = 1 + its length + Σ weight(item), an item that occurs twice counted twice

A list of two references to a list of two references … forty levels deep is small in memory, but no computer
can write it out or compare it; its weight says so before anyone tries.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping
from typing import Any


class OutOfTimeError(Exception):
    """A template did not end in time."""


class Ledger(threading.local):
    """What the render that runs in this thread has made so far, and when it must end."""

    def __init__(self) -> None:
        self.open(math.inf)

    def open(self, seconds: float) -> None:
        """Begin with an empty page."""
        self.made = 0
        self.known: dict[int, tuple[Any, int]] = {}
        self.end = time.monotonic() + seconds

    def tick(self) -> None:
        """One step of the template."""
        if time.monotonic() > self.end:
            raise OutOfTimeError

    def weigh(self, value: Any) -> int:
        """About how many characters `value` would have if it were written out."""
        if isinstance(value, str | bytes):
            return len(value)
        if not isinstance(value, list | tuple | Mapping):
            return 1
        # No template can change a list or dict, so that a weight stays true; keeping the value keeps its id.
        if id(value) not in self.known:
            parts = [*value.keys(), *value.values()] if isinstance(value, Mapping) else value
            self.known[id(value)] = value, 1 + len(value) + sum(map(self.weigh, parts))
        return self.known[id(value)][1]
