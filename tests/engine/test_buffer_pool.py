import gc
import os
import subprocess
import sys
import threading
from random import Random

import numpy as np
import pytest
import torch

from unspool.engine import memory as memory_module
from unspool.engine.memory import (
    MAX_POOLED_FLOATS,
    MIN_POOLED_FLOATS,
    empty_pooled,
    return_buffer,
    take_buffer,
)


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    gc.collect()  # arrays of other tests return their memory now, not during this test
    monkeypatch.setattr(memory_module, "_idle_buffers", [])


def test_a_returned_buffer_is_reused_once():
    first = take_buffer(100)
    assert first.size == 100
    return_buffer(first)
    assert take_buffer(90) is first
    assert take_buffer(90) is not first


def test_the_smallest_sufficient_buffer_is_taken():
    small, middle, large = (take_buffer(size) for size in (10, 20, 30))
    for numbers in (large, small, middle):
        return_buffer(numbers)
    assert take_buffer(15) is middle
    assert take_buffer(15) is large
    assert take_buffer(15).size == 15


def test_a_small_request_does_not_get_a_large_buffer():
    return_buffer(take_buffer(1000))
    assert take_buffer(10).size == 10


def test_the_pool_keeps_at_most_its_limit():
    return_buffer(np.empty(0, np.float32))
    return_buffer(np.empty(MAX_POOLED_FLOATS + 1, np.float32))
    assert memory_module._idle_buffers == []
    third = [np.empty(MAX_POOLED_FLOATS // 3, np.float32) for _ in range(4)]
    for numbers in third:
        return_buffer(numbers)
    assert [id(numbers) for numbers in memory_module._idle_buffers] == [id(numbers) for numbers in third[1:]]


def test_the_pool_is_cleared_before_memory_is_refused(monkeypatch):
    return_buffer(take_buffer(1000))

    def scarce(size):
        if memory_module._idle_buffers:
            raise MemoryError
        return np.empty(size, np.float32)

    monkeypatch.setattr(memory_module, "empty_aligned", scarce)
    assert take_buffer(10).size == 10
    assert memory_module._idle_buffers == []


def test_exhausted_memory_is_an_error(monkeypatch):
    def refuse(size):
        raise MemoryError

    monkeypatch.setattr(memory_module, "empty_aligned", refuse)
    with pytest.raises(MemoryError):
        take_buffer(10)


BIG = MIN_POOLED_FLOATS


def reach(array):
    """The addresses from its first number to its last."""
    return range(array.ctypes.data, array.ctypes.data + array.nbytes)


def test_a_pooled_array_returns_when_it_is_deleted():
    first = empty_pooled(4, BIG)
    assert first.shape == (4, BIG)
    where = reach(first)
    second = empty_pooled(4, BIG)
    assert second.ctypes.data not in where
    del first
    assert empty_pooled(4 * BIG - 7).ctypes.data == where.start


HELD = {
    "a view": lambda array: array[1:],
    "a view of a view": lambda array: array[1:][0, 5:9],
    "other numbers": lambda array: array.view(np.int32),
    "no array": lambda array: memoryview(array),
    "a tensor": lambda array: torch.from_numpy(array),
    "a tensor of a view": lambda array: torch.from_numpy(array[1]),
    "a view of a tensor": lambda array: torch.from_numpy(array)[1].view(-1, 2).T,
    "a tensor's storage": lambda array: torch.from_numpy(array).untyped_storage(),
    "an array of a tensor": lambda array: torch.from_numpy(array)[1:].numpy()[:, 3:],
    "handed over": lambda array: torch.from_dlpack(array),
    "handed back": lambda array: np.from_dlpack(torch.from_numpy(array)),
}


@pytest.mark.parametrize("show", HELD.values(), ids=HELD)
def test_memory_with_a_view_is_not_reused(show):
    array = empty_pooled(2, BIG)
    where = reach(array)
    held = show(array)
    del array
    gc.collect()
    assert memory_module._idle_buffers == []
    assert empty_pooled(2, BIG).ctypes.data not in where
    memory_module._idle_buffers.clear()
    del held
    assert [each.ctypes.data for each in memory_module._idle_buffers] == [where.start]


def test_memory_in_a_reference_cycle_returns_when_it_is_collected():
    circle = [empty_pooled(BIG)]
    circle.append(circle)
    where = reach(circle[0])
    del circle
    gc.collect()
    assert empty_pooled(BIG).ctypes.data in where


@pytest.mark.parametrize("size", [0, BIG - 1, MAX_POOLED_FLOATS + 1])
def test_small_and_huge_arrays_are_not_pooled(size):
    array = empty_pooled(size)
    assert array.shape == (size,)
    del array
    assert memory_module._idle_buffers == []


def test_pooled_memory_starts_at_a_cache_line():
    arrays = [empty_pooled(3, BIG + size) for size in (1, 5, 11)]
    assert all(array.ctypes.data % 64 == 0 and array.flags.c_contiguous for array in arrays)


def test_threads_never_share_pooled_memory():
    wrong = []

    def work(name):
        rng, held = Random(name), []
        for turn in range(300):
            array = empty_pooled(BIG + rng.randrange(100))
            array[:] = 1000 * name + turn
            held.append((torch.from_numpy(array)[5:], 1000 * name + turn))
            if len(held) > rng.randrange(6):
                tensor, number = held.pop(rng.randrange(len(held)))
                wrong.extend([number] * (not bool((tensor == number).all())))

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


ENDS = """
import sys
import torch
from unspool.engine.memory import MIN_POOLED_FLOATS, empty_pooled
here = torch.from_numpy(empty_pooled(MIN_POOLED_FLOATS))
sys.held = empty_pooled(MIN_POOLED_FLOATS)
torch.held = torch.from_numpy(empty_pooled(MIN_POOLED_FLOATS))
"""


def test_a_process_exits_cleanly_with_pooled_arrays():
    ended = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, text=True, check=True)
    assert ended.stderr == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_forked_process_does_not_inherit_the_pool_lock():
    code = """
import os, threading
from unspool.engine import memory
looking, done = threading.Event(), threading.Event()
def look():
    with memory._pool_lock:
        looking.set()
        done.wait()
thread = threading.Thread(target=look)
thread.start()
looking.wait()
child = os.fork()
if child == 0:
    memory.take_buffer(10)
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
done.set()
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ended.stdout == "7\n"
