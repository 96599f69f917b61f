import threading

import pytest

from unspool.serve.api_error import ApiError
from unspool.serve.worker_pool import WorkerPool


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
