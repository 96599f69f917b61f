import numpy as np

from unspool.engine.kernel import entry
from unspool.engine.memory import floats, octets


@entry
def total(address, size):
    return floats(address, size).sum()


@entry
def last_octet(address, size):
    return octets(address, size)[size - 1]


@entry
def write(address, size):
    floats(address, size)[1] = 7


def test_numbers_at_an_address_are_those_of_the_array_there():
    numbers = np.array([1.5, 2, -0.25], np.float32)
    assert total(numbers.ctypes.data, 3) == 3.25
    assert total(numbers.ctypes.data, 2) == 3.5
    write(numbers.ctypes.data, 3)
    assert numbers[1] == 7


def test_octets_are_not_signed():
    numbers = np.array([1, -1], np.int8)
    assert last_octet(numbers.ctypes.data, 2) == 255
