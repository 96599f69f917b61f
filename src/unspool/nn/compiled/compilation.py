"""The step, compiled once for this processor and kept on disk; the first time says so.

numba looks only at the file of the function that it compiles when it decides whether what it keeps is still
good. A fingerprint of every file of this room goes into the function, so that it is never an old one.
"""

from __future__ import annotations

import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba.core import event

from unspool.nn.compiled.lanes import CHECKED
from unspool.nn.compiled.step import compiled


def fingerprint(folder: Path) -> int:
    """One number for all that is written in a folder's Python files."""
    found = 0
    for path in sorted(folder.rglob("*.py")):
        found = zlib.crc32(path.read_bytes(), found)
    return found


step = compiled(2 * fingerprint(Path(__file__).parent) + CHECKED)
"""The compiled step, and how to call it: `step.compiled`."""


class Announcement(event.Listener):  # type: ignore[misc]
    """Says on stderr that something is being compiled, when that begins (not when it is found on disk)."""

    def __init__(self) -> None:
        self.began: float | None = None

    def on_start(self, event: Any) -> None:  # noqa: ARG002
        """A pass of the compiler begins."""
        if self.began is None:
            self.began = time.perf_counter()
            print(
                "unspool: compiling the decoding step for this processor (once, 10 to 20 seconds) …",
                end="",
                file=sys.stderr,
                flush=True,
            )

    def on_end(self, event: Any) -> None:
        """A pass of the compiler ends."""

    def close(self) -> None:
        """All is compiled."""
        if self.began is not None:
            print(f" done in {time.perf_counter() - self.began:.0f} s", file=sys.stderr, flush=True)


def announced(call: Callable[[], None]) -> None:
    """Make a call, and say so if that compiles anything."""
    listener = Announcement()
    event.register("numba:run_pass", listener)
    try:
        call()
    finally:
        event.unregister("numba:run_pass", listener)
        listener.close()
