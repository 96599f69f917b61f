import threading
import time
from typing import NamedTuple

import numba
import numpy as np
import pytest

from unspool.engine.kernel import kernel
from unspool.engine.threads import (
    CALLS,
    ENOUGH,
    INSIDE,
    OPEN,
    close,
    enter,
    entered,
    finish,
    leave,
    meet,
    new_board,
    open_to_all,
    take,
    without_memory,
)

PIECES = 400


@kernel
def double(x, y, who, me, turns):
    """y = 2x, piece by piece, and who did each of them."""
    piece = take(turns, 0)
    while piece < x.size:
        y[piece], who[piece] = 2 * x[piece], me
        for _ in range(2000):  # long enough for others to come
            y[piece] += 0
        piece = finish(turns, 0)
    meet(turns, 0, x.size)


@kernel
def take_part(x, y, who, turns, threads, board):
    mine = (x, y, who, turns)
    entries = 0
    if threads == 0:
        number = enter(board, mine, 0)
        while number:
            x, y, who, turns = entered(board, mine)
            double(x, y, who, 1, turns)
            leave(board)
            entries += 1
            number = enter(board, mine, number)
    else:
        open_to_all(board, mine)
        double(x, y, who, 0, turns)
        close(board)
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
    return new_board()


def test_a_helper_that_is_there_takes_part_in_one_call_after_another(board):
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
        assert board[OPEN] == board[INSIDE] == 0  # nobody is left in it
        helped += 1 in who
    thread.join(timeout=20)
    assert found
    assert helped == 3


def test_without_a_call_it_goes(board):
    before = time.perf_counter()
    thread, found = in_a_thread(args(1), board)
    thread.join(timeout=20)
    assert found == [0]
    assert time.perf_counter() - before < 20


def test_it_goes_where_it_is_wanted_elsewhere(board):
    board[ENOUGH] = 1
    board[OPEN] = 7  # even if a call is open
    assert call(*args(1), 0, board) == 0
    assert board[INSIDE] == 0


def test_a_call_with_other_types_is_not_entered(board):
    """Its arguments would be read as what they are not."""
    thread, found = in_a_thread(args(1, np.float32), board)
    for number in range(1, 50):
        x, y, who, turns = args(number)
        call(x, y, who, turns, 2, board)
        assert set(who) == {0}
    thread.join(timeout=20)
    assert found == [0]


def test_alone_all_is_done_and_calls_are_counted(board):
    for number in (1, 2, 3):
        x, y, who, turns = args(number)
        call(x, y, who, turns, 2, board)
        np.testing.assert_array_equal(y, 2 * x)
    assert board[CALLS] == 3


class Pair(NamedTuple):
    numbers: object
    size: int


def test_what_a_helper_is_given_has_the_types_of_a_call_and_none_of_its_memory():
    given = (Pair(np.ones((2, 3), np.float32), 7), np.ones(4, np.int64), 2.5)
    found = without_memory(given)
    assert numba.typeof(found) == numba.typeof(given)
    assert found[0].numbers.size == found[1].size == 0
    assert (found[0].size, found[2]) == (7, 2.5)
