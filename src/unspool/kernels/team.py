"""Threads that help with a step, and sleep between two texts.

They call the same compiled function with the same arguments as the thread that decodes (`turns` says who does
what), which never waits for a helper that has not come. Where steps follow each other closely, helpers stay
in compiled code from one to the next (`open_call`). torch's own threads are left alone.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unspool.kernels.lanes import CHECKED
from unspool.kernels.open_call import ENOUGH

Board = NDArray[np.int64]
Call = tuple[Board | None, Callable[..., Any], tuple[Any, ...]]

boards: list[Board] = []
"""All there are."""


class Helper:
    """A thread that makes the calls that it is given."""

    def __init__(self, name: str) -> None:
        self.calls: SimpleQueue[Call] = SimpleQueue()
        self.at: Board | None = None
        """The board that it looks at now."""
        threading.Thread(target=self._help, name=name, daemon=True).start()

    def _help(self) -> None:
        while True:
            self.at, function, args = self.calls.get()
            function(*args)
            self.at = None
            del function, args  # a sleeping helper keeps no model alive

    def give(self, board: Board | None, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Let it make this call, as soon as it has left the board that it is at."""
        now = self.at
        if now is not None:
            now[ENOUGH] = 1
        self.calls.put((board, function, args))


_helpers: list[Helper] = []
_hiring = threading.Lock()


def _hire(helpers: int) -> None:
    with _hiring:
        while len(_helpers) < helpers:
            _helpers.append(Helper(f"unspool-{len(_helpers) + 1}"))


def together(threads: int, function: Callable[..., Any], *args: Any) -> None:
    """Call `function(*args)` in this thread and in `threads` − 1 helpers; return when it is done here."""
    if CHECKED:
        threads = 1  # an error that a helper found would be lost, and its piece with it
    if threads > len(_helpers) + 1:
        _hire(threads - 1)
    for helper in _helpers[: threads - 1]:
        helper.give(None, function, args)
    function(*args)


def stay(helpers: int, board: Board, function: Callable[..., Any], *args: Any) -> None:
    """Let so many helpers be at a board: in a call that ends when nothing has happened there for a while."""
    if helpers > len(_helpers):
        _hire(helpers)
    board[ENOUGH] = 0
    for helper in _helpers[:helpers]:
        if helper.at is not board and helper.calls.empty():
            helper.give(board, function, args)


def _after_fork() -> None:
    """A child process has none of its parent's threads, and nobody is at its boards."""
    global _hiring
    _helpers.clear()
    _hiring = threading.Lock()
    for board in boards:
        board[:] = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
