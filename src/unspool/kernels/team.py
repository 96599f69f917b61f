"""Threads that help with a step, and sleep between two steps.

They call the same compiled function with the same arguments as the thread that decodes (`turns` says who does
what), which never waits for a helper that has not come. torch's own threads are left alone.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from unspool.kernels.lanes import CHECKED

Call = tuple[Callable[..., Any], tuple[Any, ...]]

_helpers: list[SimpleQueue[Call]] = []
_hiring = threading.Lock()


def _help(calls: SimpleQueue[Call]) -> None:
    while True:
        function, args = calls.get()
        function(*args)
        del function, args  # a sleeping helper keeps no model alive


def _hire(helpers: int) -> None:
    with _hiring:
        while len(_helpers) < helpers:
            calls: SimpleQueue[Call] = SimpleQueue()
            name = f"unspool-{len(_helpers) + 1}"
            threading.Thread(target=_help, args=(calls,), name=name, daemon=True).start()
            _helpers.append(calls)


def together(threads: int, function: Callable[..., Any], *args: Any) -> None:
    """Call `function(*args)` in this thread and in `threads` − 1 helpers; return when it is done here."""
    if CHECKED:
        threads = 1  # an error that a helper found would be lost, and its piece with it
    if threads > len(_helpers) + 1:
        _hire(threads - 1)
    for calls in _helpers[: threads - 1]:
        calls.put((function, args))
    function(*args)


def _after_fork() -> None:
    """A child process has none of its parent's threads."""
    global _hiring
    _helpers.clear()
    _hiring = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
