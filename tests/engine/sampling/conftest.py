import numba
import numpy as np
import pytest

from unspool.engine.sampling_passes import Scratch, fill, rooms, scratch

laid = numba.njit(scratch.py_func)  # a kernel counts no references, and must not return an array to Python


def made(size):
    return laid(rooms(1, size)[0], size)


@numba.njit
def filled_up(room, size):
    fill(room, size)


@pytest.fixture
def listed():
    """A room with a list of scores, and of weights where they are given."""

    def make(scores, weights=None):
        size = len(scores)
        room = Scratch(*made(size))
        room.score[:size] = scores
        room.weight[:size] = np.exp(scores) if weights is None else weights
        room.token[:size] = np.arange(size)
        filled_up(room, size)
        return room

    return make
