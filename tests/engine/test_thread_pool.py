import multiprocessing
import threading
import time

import pytest

from unspool.engine import threads
from unspool.engine.threads import DISMISSED, new_mailbox


@pytest.fixture(autouse=True)
def several_threads(monkeypatch):
    """Also where indices are looked at, and kernels run in one thread: nothing here is a kernel."""
    monkeypatch.setattr(threads, "BOUNDSCHECK", False)


def test_workers_make_the_same_call():
    met, barrier = [], threading.Barrier(3)

    def call(word):
        barrier.wait(timeout=20)
        met.append((word, threading.current_thread().name))

    threads.run_in_threads(3, call, "here")
    deadline = time.monotonic() + 20
    while len(met) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert {word for word, _ in met} == {"here"}
    assert len({name for _, name in met}) == 3


def test_the_caller_does_not_wait_for_a_worker():
    leave, left = threading.Event(), threading.Event()
    caller = threading.current_thread()

    def call():
        if threading.current_thread() is not caller:
            leave.wait(timeout=20)
            left.set()

    threads.run_in_threads(2, call)
    assert not left.is_set()
    leave.set()
    assert left.wait(timeout=20)


def test_one_thread_starts_no_worker():
    names = []
    threads.run_in_threads(1, lambda: names.append(threading.current_thread().name))
    assert names == [threading.current_thread().name]


def test_a_worker_stays_at_a_mailbox_until_it_is_dismissed():
    board, came, gone, other = new_mailbox(), threading.Event(), threading.Event(), threading.Event()

    def look(word):
        came.set()
        while not board[DISMISSED]:
            time.sleep(0.001)
        gone.set()

    threads.keep_workers_at(board, 1, look, "here")
    assert came.wait(timeout=20)
    came.clear()
    threads.keep_workers_at(board, 1, look, "here")  # it is there
    assert not came.wait(timeout=0.1)
    caller = threading.current_thread()
    threads.run_in_threads(2, lambda: other.set() if threading.current_thread() is not caller else None)
    assert gone.wait(timeout=20)
    assert other.wait(timeout=20)
    threads.keep_workers_at(board, 1, look, "here")  # and is called again
    assert came.wait(timeout=20)
    board[DISMISSED] = 1


def _in_child(queue):
    threads.run_in_threads(2, lambda: None)
    queue.put(len(threads._workers))


def test_a_forked_process_starts_new_workers():
    threads.run_in_threads(3, lambda: None)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(queue,))
    child.start()
    assert queue.get(timeout=20) == 1
    child.join(timeout=20)
    assert child.exitcode == 0
