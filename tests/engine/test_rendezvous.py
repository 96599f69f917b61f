import threading
import time
from typing import NamedTuple

import numba
import numpy as np
import pytest

from unspool.engine.kernel import kernel
from unspool.engine.threads import (
    CALL_COUNT,
    DISMISSED,
    OPEN_CALL,
    WORKERS_INSIDE,
    barrier,
    claim,
    close_call,
    complete,
    join_call,
    joined_arguments,
    leave_call,
    new_mailbox,
    open_call,
    with_empty_arrays,
)

PIECES = 400


@kernel
def double(x, y, who, me, turns):
    """y = 2x, piece by piece, and who did each of them."""
    piece = claim(turns, 0)
    while piece < x.size:
        y[piece], who[piece] = 2 * x[piece], me
        for _ in range(2000):  # long enough for others to come
            y[piece] += 0
        piece = complete(turns, 0)
    barrier(turns, 0, x.size)


@kernel
def take_part(x, y, who, turns, threads, board):
    mine = (x, y, who, turns)
    entries = 0
    if threads == 0:
        number = join_call(board, mine, 0)
        while number:
            x, y, who, turns = joined_arguments(board, mine)
            double(x, y, who, 1, turns)
            leave_call(board)
            entries += 1
            number = join_call(board, mine, number)
    else:
        open_call(board, mine)
        double(x, y, who, 0, turns)
        close_call(board)
    return entries


@numba.njit(nogil=True)
def call(x, y, who, turns, threads, board):
    return take_part(x, y, who, turns, threads, board)


def args(number, kind=np.float64):
    x = np.arange(PIECES, dtype=kind) * number
    return x, np.zeros_like(x), np.full(PIECES, -1), np.zeros(2, np.int64)


def in_a_thread(mine, board):
    found = []
    thread = threading.Thread(target=lambda: found.append(call(*mine, 0, board)))
    thread.start()
    return thread, found


@pytest.fixture
def board():
    return new_mailbox()


def test_a_waiting_worker_joins_one_call_after_another(board):
    call(*args(1), 1, board)  # compiled
    deadline, number, helped = time.monotonic() + 60, 0, 0
    thread, found = in_a_thread(args(1), board)
    while helped < 3 and time.monotonic() < deadline:
        if not thread.is_alive():  # a busy machine may let it wait longer than it has patience
            thread, found = in_a_thread(args(1), board)
        number += 1
        x, y, who, turns = args(number)
        call(x, y, who, turns, 2, board)
        np.testing.assert_array_equal(y, 2 * x)  # of this call's arguments, not of those it began with
        assert set(who) <= {0, 1}
        assert board[OPEN_CALL] == board[WORKERS_INSIDE] == 0  # all workers have left
        helped += 1 in who
    thread.join(timeout=20)
    assert found
    assert helped == 3


def test_a_worker_leaves_after_a_time_without_calls(board):
    before = time.perf_counter()
    thread, found = in_a_thread(args(1), board)
    thread.join(timeout=20)
    assert found == [0]
    assert time.perf_counter() - before < 20


def test_a_dismissed_worker_leaves(board):
    board[DISMISSED] = 1
    board[OPEN_CALL] = 7  # even if a call is open
    assert call(*args(1), 0, board) == 0
    assert board[WORKERS_INSIDE] == 0


def test_a_worker_does_not_join_a_call_with_other_types(board):
    """Its arguments would be read as what they are not."""
    thread, found = in_a_thread(args(1, np.float32), board)
    for number in range(1, 50):
        x, y, who, turns = args(number)
        call(x, y, who, turns, 2, board)
        assert set(who) == {0}
    thread.join(timeout=20)
    assert found == [0]


def test_the_caller_alone_completes_the_call(board):
    for number in (1, 2, 3):
        x, y, who, turns = args(number)
        call(x, y, who, turns, 2, board)
        np.testing.assert_array_equal(y, 2 * x)
    assert board[CALL_COUNT] == 3


class Pair(NamedTuple):
    numbers: object
    size: int


def test_worker_arguments_have_the_types_of_a_call_and_empty_arrays():
    given = (Pair(np.ones((2, 3), np.float32), 7), np.ones(4, np.int64), 2.5)
    found = with_empty_arrays(given)
    assert numba.typeof(found) == numba.typeof(given)
    assert found[0].numbers.size == found[1].size == 0
    assert (found[0].size, found[2]) == (7, 2.5)
