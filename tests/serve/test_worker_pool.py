import threading

import pytest

from unspool.serve.api_error import ApiError
from unspool.serve.streaming import WorkerPool


def test_so_many_run_so_many_wait_and_others_are_told_when_to_come():
    pool, free, begun = WorkerPool(slots=1, queue=1), threading.Event(), threading.Event()
    done = []

    def work(name):
        begun.set()
        assert free.wait(10)
        done.append(name)

    pool.submit(lambda: work("first"))
    assert begun.wait(10)
    pool.submit(lambda: work("second"))
    assert (pool.running, pool.waiting) == (1, 1)
    with pytest.raises(ApiError, match="queue is full") as full:
        pool.submit(lambda: work("third"))
    assert full.value.status == 429
    assert 1 <= int(full.value.headers["Retry-After"]) <= 60
    free.set()
    pool.close()
    assert done == ["first", "second"]
    assert (pool.running, pool.waiting) == (0, 0)


def held(pool):
    """Occupy one slot until the event is set."""
    free, begun = threading.Event(), threading.Event()

    def work():
        begun.set()
        assert free.wait(10)

    pool.submit(work)
    assert begun.wait(10)
    return free


def test_a_withdrawn_request_leaves_the_queue_at_once_and_never_runs():
    pool, ran = WorkerPool(slots=1, queue=1), []
    free = held(pool)
    for _ in range(1000):  # more than the queue holds
        assert pool.withdraw(pool.submit(lambda: ran.append(1)))
    assert (pool.running, pool.waiting) == (1, 0)
    ticket = pool.submit(lambda: ran.append(2))
    free.set()
    pool.close()
    assert not pool.withdraw(ticket)
    assert ran == [2]
    with pytest.raises(ApiError, match="closing"):
        pool.submit(lambda: None)


def test_each_owner_has_its_own_limit():
    pool = WorkerPool(slots=1, queue=9, per_owner=2)
    free = held(pool)
    tickets = [pool.submit(lambda: None, "anna") for _ in range(2)]
    with pytest.raises(ApiError, match="API key has 2 requests") as refused:
        pool.submit(lambda: None, "anna")
    assert (refused.value.status, refused.value.code) == (429, "key_limit")
    pool.submit(lambda: None, "ben")
    pool.withdraw(tickets[0])
    pool.submit(lambda: None, "anna")
    free.set()
    pool.close()
    assert not pool._owners


def test_closing_does_not_wait_longer_than_it_should():
    pool = WorkerPool(slots=1, queue=1)
    free = held(pool)
    pool.close(seconds=0.01)
    assert pool.running == 1
    free.set()
    pool.close()
    assert pool.running == 0
