import numba
import numpy as np
import pytest

from unspool.engine.kernel import inline_kernel, kernel
from unspool.engine.numba_internals import KernelLibrary


@kernel
def squared(x):
    return x * x


@inline_kernel
def root(x):
    if x < 0:
        raise ValueError("no root")
    return np.sqrt(x)


@kernel
def length(a, b):
    return root(squared(a) + squared(b))


@numba.njit
def distance(a, b):
    return length(a, b)


@numba.njit
def half_way(a):
    return root(a)


def library(dispatcher):
    (made,) = dispatcher.overloads.values()
    return made.library


def test_a_kernel_is_linked_into_its_caller_without_machine_code():
    assert distance(3.0, 4.0) == 5.0
    for inner in (squared, root, length):
        assert isinstance(library(inner), KernelLibrary)
        with pytest.raises(ValueError, match="object caching not enabled"):
            library(inner)._get_compiled_object()
    assert library(distance)._get_compiled_object()


def test_a_kernel_is_compiled_for_each_kind_of_argument():
    again = kernel(squared.py_func)
    both = numba.njit(lambda n, x: again(n) + again(x))
    assert both(3, 0.5) == 9.25
    assert len(again.overloads) == 2


def test_an_exception_in_a_kernel_reaches_the_caller():
    assert half_way(4.0) == 2.0
    with pytest.raises(ValueError, match="no root"):
        half_way(-1.0)
