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
    IDLE_NANOSECONDS,
    OPEN_CALL,
    WORKERS_INSIDE,
    add_seq_cst,
    barrier,
    claim,
    close_call,
    complete,
    exchange,
    join_call,
    joined_arguments,
    leave_call,
    load_acquire,
    load_seq_cst,
    new_mailbox,
    open_call,
    read_clock,
    with_empty_arrays,
    yield_processor,
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
    call(*args(1), 1, board)  # compiled
    before = time.perf_counter()
    thread, found = in_a_thread(args(1), board)
    thread.join(timeout=20)
    assert found == [0]
    assert IDLE_NANOSECONDS < 1e9 * (time.perf_counter() - before) < 20e9


def test_the_clock_counts_nanoseconds():
    clock = numba.njit(lambda: read_clock())
    clock()
    before, began = clock(), time.perf_counter()
    time.sleep(0.2)
    measured, passed = (clock() - before) / 1e9, time.perf_counter() - began
    assert measured == pytest.approx(passed, abs=0.05)


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


@kernel
def short_rounds(state, threads, board):
    """Calls without work; a worker counts its joins, and how often the call that it was in had returned."""
    mine, joined, late = (state,), 0, 0
    if threads == 0:
        number = join_call(board, mine, 0)
        while number:
            (own,) = joined_arguments(board, mine)
            joined += 1
            for _ in range(20):
                late += load_acquire(own, 0)
            leave_call(board)
            number = join_call(board, mine, number)
    else:
        exchange(state, 0, 0)
        open_call(board, mine)
        for _ in range(threads):
            load_acquire(state, 0)
        close_call(board)
        exchange(state, 0, 1)
    return joined, late


@numba.njit(nogil=True)
def short_calls(state, threads, board):
    return short_rounds(state, threads, board)  # a kernel counts no references to the caller's arrays


def test_no_worker_is_in_a_call_that_has_returned(board):
    """Stress: short calls and workers that come and go, more threads than processors, for two seconds."""
    states = [np.ones(8, np.int64) for _ in range(5)]
    short_calls(states[0], 1, board)  # compiled
    stop, totals = threading.Event(), np.zeros((3, 2), np.int64)

    def work(own):
        while not stop.is_set():
            own += short_calls(states[0], 0, board)

    workers = [threading.Thread(target=work, args=(own,)) for own in totals]
    for worker in workers:
        worker.start()
    deadline, number = time.monotonic() + 2, 0
    while time.monotonic() < deadline:
        number += 1
        board[DISMISSED] = number % 512 < 16
        short_calls(states[number % 5], 1 + number % 97, board)
        assert board[OPEN_CALL] == 0  # a late worker may announce itself now: it finds the call closed
    board[DISMISSED] = 1
    stop.set()
    for worker in workers:
        worker.join(timeout=20)
    assert board[WORKERS_INSIDE] == 0
    joined, late = totals.sum(0)
    assert joined > 0
    assert late == 0


@numba.njit(nogil=True)
def race(mine, other, begin, rounds, seen):
    """Round after round: announce, then look whether the other one has announced (Dekker)."""
    for turn in range(1, rounds + 1):
        add_seq_cst(begin, 0, 1)
        spins = 0
        while load_acquire(begin, 0) < 2 * turn:
            spins += 1
            if spins % 1000 == 0:
                yield_processor()
        exchange(mine, 0, turn)
        seen[turn - 1] = load_seq_cst(other, 0)


def test_of_two_threads_that_announce_and_look_one_sees_the_other():
    a, b, begin = (np.zeros(8, np.int64) for _ in range(3))
    race(a.copy(), b.copy(), begin + 2, 1, np.zeros(1, np.int64))  # compiled
    deadline, rounds = time.monotonic() + 2, 2000
    while time.monotonic() < deadline:
        a[:], b[:], begin[:] = 0, 0, 0
        seen = np.zeros((2, rounds), np.int64)
        pair = [
            threading.Thread(target=race, args=(mine, other, begin, rounds, row))
            for mine, other, row in ((a, b, seen[0]), (b, a, seen[1]))
        ]
        for thread in pair:
            thread.start()
        for thread in pair:
            thread.join(timeout=60)
        turns = np.arange(1, rounds + 1)
        assert ((seen[0] == turns) | (seen[1] == turns)).all()


class Pair(NamedTuple):
    numbers: object
    size: int


def test_worker_arguments_have_the_types_of_a_call_and_empty_arrays():
    given = (Pair(np.ones((2, 3), np.float32), 7), np.ones(4, np.int64), 2.5)
    found = with_empty_arrays(given)
    assert numba.typeof(found) == numba.typeof(given)
    assert found[0].numbers.size == found[1].size == 0
    assert (found[0].size, found[2]) == (7, 2.5)
