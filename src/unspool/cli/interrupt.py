"""Ctrl-C, answered in one line whenever it comes.

Python raises KeyboardInterrupt wherever it is. In the middle of an import that may be inside the C code of a
library that is half there (torch aborts the process, numpy fails with errors of its own). An import is
therefore not unwound: it has done nothing that would have to be undone, and the process leaves at once.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

STATUS = 128 + int(signal.SIGINT)
MESSAGE = "unspool: interrupted"


@contextmanager
def leaving_imports_at_once() -> Iterator[None]:
    """Within, Ctrl-C during an import ends the process; at any other time it raises KeyboardInterrupt."""
    # Another handler is somebody's choice: nohup's is to ignore the signal.
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    try:
        signal.signal(signal.SIGINT, _handle)
    except ValueError:  # only the main thread of a program receives signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _handle(number: int, frame: FrameType | None) -> None:
    if not _importing(frame):
        signal.default_int_handler(number, frame)
    with suppress(Exception):  # a stream may be closed, or be in the middle of something else
        sys.stdout.flush()
        print(MESSAGE, file=sys.stderr, flush=True)
    os._exit(STATUS)


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
