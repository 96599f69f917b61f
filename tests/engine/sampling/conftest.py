import numba
import numpy as np
import pytest

from unspool.engine.sampling_passes import Scratch, pad_list, scratch_memory, scratch_view

lay_out = numba.njit(scratch_view.py_func)  # a kernel must not return an array to Python


def new_scratch(size):
    return lay_out(scratch_memory(1, size)[0], size)


@numba.njit
def pad(scratch, size):
    pad_list(scratch, size)


@pytest.fixture
def listed():
    """A scratch with a list of scores and their weights."""

    def make(scores, weights=None):
        size = len(scores)
        scratch = Scratch(*new_scratch(size))
        scratch.score[:size] = scores
        scratch.weight[:size] = np.exp(scores) if weights is None else weights
        scratch.token[:size] = np.arange(size)
        pad(scratch, size)
        return scratch

    return make
