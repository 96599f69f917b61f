import numpy as np
import pytest

from unspool.nn.compiled import spare_memory
from unspool.nn.compiled.spare_memory import MOST, keep, memory


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    monkeypatch.setattr(spare_memory, "_kept", [])


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
    keep(np.empty(MOST + 1, np.float32))
    assert spare_memory._kept == []
    third = [np.empty(MOST // 3, np.float32) for _ in range(4)]
    for numbers in third:
        keep(numbers)
    assert [id(numbers) for numbers in spare_memory._kept] == [id(numbers) for numbers in third[1:]]


def test_what_is_kept_is_let_go_before_memory_is_refused(monkeypatch):
    keep(memory(1000))

    def scarce(size):
        if spare_memory._kept:
            raise MemoryError
        return np.empty(size, np.float32)

    monkeypatch.setattr(spare_memory, "aligned", scarce)
    assert memory(10).size == 10
    assert spare_memory._kept == []


def test_memory_that_is_not_there_is_refused(monkeypatch):
    def refuse(size):
        raise MemoryError

    monkeypatch.setattr(spare_memory, "aligned", refuse)
    with pytest.raises(MemoryError):
        memory(10)
