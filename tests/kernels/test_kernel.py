import ctypes

from numba import types

from unspool.kernels.kernel import callback, entry, kernel, small_kernel


@kernel
def twice(x):
    return 2 * x


@small_kernel
def thrice(x):
    return 3 * x


@entry
def five_times(x):
    return twice(x) + thrice(x)


def test_a_kernel_is_compiled_into_the_entry_that_calls_it():
    assert five_times(4) == 20
    assert five_times.nopython_signatures


def nine_times(x: int) -> int:
    return thrice(thrice(x))


def test_a_callback_is_called_by_its_address():
    made = callback(types.int64(types.int64), nine_times)
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(made.address)(5) == 45
