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
from unspool.engine.memory import LENT, MAX_KEPT_NUMBERS, keep, lent, memory


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    monkeypatch.setattr(memory_module, "_kept", [])


def test_what_is_kept_is_given_again_once():
    first = memory(100)
    assert first.size == 100
    keep(first)
    assert memory(90) is first
    assert memory(90) is not first


def test_the_smallest_that_is_large_enough():
    small, middle, large = (memory(size) for size in (10, 20, 30))
    for numbers in (large, small, middle):
        keep(numbers)
    assert memory(15) is middle
    assert memory(15) is large
    assert memory(15).size == 15


def test_little_is_not_given_much():
    keep(memory(1000))
    assert memory(10).size == 10


def test_no_more_is_kept_than_the_limit():
    keep(np.empty(0, np.float32))
    keep(np.empty(MAX_KEPT_NUMBERS + 1, np.float32))
    assert memory_module._kept == []
    third = [np.empty(MAX_KEPT_NUMBERS // 3, np.float32) for _ in range(4)]
    for numbers in third:
        keep(numbers)
    assert [id(numbers) for numbers in memory_module._kept] == [id(numbers) for numbers in third[1:]]


def test_what_is_kept_is_let_go_before_memory_is_refused(monkeypatch):
    keep(memory(1000))

    def scarce(size):
        if memory_module._kept:
            raise MemoryError
        return np.empty(size, np.float32)

    monkeypatch.setattr(memory_module, "aligned", scarce)
    assert memory(10).size == 10
    assert memory_module._kept == []


def test_memory_that_is_not_there_is_refused(monkeypatch):
    def refuse(size):
        raise MemoryError

    monkeypatch.setattr(memory_module, "aligned", refuse)
    with pytest.raises(MemoryError):
        memory(10)


BIG = LENT.start


def reach(array):
    """The addresses from its first number to its last."""
    return range(array.ctypes.data, array.ctypes.data + array.nbytes)


def test_what_was_lent_comes_back_when_it_is_gone():
    first = lent(4, BIG)
    assert first.shape == (4, BIG)
    where = reach(first)
    second = lent(4, BIG)
    assert second.ctypes.data not in where
    del first
    assert lent(4 * BIG - 7).ctypes.data == where.start


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
def test_what_somebody_still_sees_is_not_lent_again(show):
    array = lent(2, BIG)
    where = reach(array)
    held = show(array)
    del array
    gc.collect()
    assert memory_module._kept == []
    assert lent(2, BIG).ctypes.data not in where
    memory_module._kept.clear()
    del held
    assert [each.ctypes.data for each in memory_module._kept] == [where.start]


def test_what_is_lost_in_a_circle_comes_back_when_it_is_collected():
    circle = [lent(BIG)]
    circle.append(circle)
    where = reach(circle[0])
    del circle
    gc.collect()
    assert lent(BIG).ctypes.data in where


@pytest.mark.parametrize("size", [0, BIG - 1, LENT.stop])
def test_what_the_system_gives_as_fast_and_what_is_too_large_is_not_kept(size):
    array = lent(size)
    assert array.shape == (size,)
    del array
    assert memory_module._kept == []


def test_lent_memory_begins_at_a_line():
    arrays = [lent(3, BIG + size) for size in (1, 5, 11)]
    assert all(array.ctypes.data % 64 == 0 and array.flags.c_contiguous for array in arrays)


def test_threads_never_see_each_other_s_numbers():
    wrong = []

    def work(name):
        dice, held = Random(name), []
        for turn in range(300):
            array = lent(BIG + dice.randrange(100))
            array[:] = 1000 * name + turn
            held.append((torch.from_numpy(array)[5:], 1000 * name + turn))
            if len(held) > dice.randrange(6):
                tensor, number = held.pop(dice.randrange(len(held)))
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
from unspool.engine.memory import LENT, lent
here = torch.from_numpy(lent(LENT.start))
sys.held = lent(LENT.start)
torch.held = torch.from_numpy(lent(LENT.start))
"""


def test_a_process_ends_in_peace_with_memory_lent():
    ended = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, text=True, check=True)
    assert ended.stderr == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_child_process_does_not_wait_for_a_thread_that_it_does_not_have():
    code = """
import os, threading
from unspool.engine import spare_memory
looking, done = threading.Event(), threading.Event()
def look():
    with spare_memory._looking:
        looking.set()
        done.wait()
thread = threading.Thread(target=look)
thread.start()
looking.wait()
child = os.fork()
if child == 0:
    spare_memory.memory(10)
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
done.set()
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ended.stdout == "7\n"
