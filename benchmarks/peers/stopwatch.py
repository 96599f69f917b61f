"""A reporter of training that notes the CPU time of every update: what `us.train(…, reporter=Stopwatch())` tells."""

from __future__ import annotations

import time
from collections.abc import Iterable


class Stopwatch:
    """Says nothing; `seconds` has the CPU time of each update."""

    has_progress_bar = False

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def note(self, text: str) -> None:
        """Not said."""

    warn = note

    def follow(self, updates: Iterable[object], run: object) -> None:  # noqa: ARG002
        """Take all updates."""
        began = time.process_time()
        for _ in updates:
            now = time.process_time()
            self.seconds.append(now - began)
            began = now
