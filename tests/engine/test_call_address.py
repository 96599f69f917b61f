import numpy as np
from numba import cfunc, njit, types

from unspool.engine.kernel import call_address, floats_at


@cfunc(types.void(*[types.int64] * 8))
def weighed(x, y, a, b, c, d, e, f):
    floats_at(y, 1)[0] = a * floats_at(x, 1)[0] + b + 10 * c + 100 * d + 1000 * e + 10000 * f


@njit
def asked(address, x, y):
    call_address(address, x.ctypes.data, y.ctypes.data, 2, 3, 4, 5, 6, 7)


def test_a_function_is_called_by_its_address():
    x, y = np.array([1.5], np.float32), np.zeros(1, np.float32)
    asked(weighed.address, x, y)
    assert y[0] == 3 + 3 + 40 + 500 + 6000 + 70000
