import os
import platform
import subprocess
import sys

import numba
import numpy as np
import pytest
from llvmlite import binding

from unspool.engine import simd

W = simd.WIDTH
A = np.array([1.5, -2, 3.25, 0.1, -7, 11, 1e-3, 2, 0.3, 5, -0.7, 4, 9, -8, 0.6, 1], np.float32)[:W]
B = np.array([-2, 4, 0.5, -6, 0.25, 3, 1e3, -1, 7, 0.9, -3, 2, 1.1, 6, -4, 8], np.float32)[:W]


@numba.njit
def twos(a, b):
    x, y = simd.load(a, 0), simd.load(b, 0)
    out = np.empty(6 * W, np.float32)
    simd.store(out, 0, simd.vadd(x, y))
    simd.store(out, W, simd.vmul(x, y))
    simd.store(out, 2 * W, simd.vdiv(x, y))
    simd.store(out, 3 * W, simd.vmax(x, y))
    simd.store(out, 4 * W, simd.vmin(x, y))
    simd.store(out, 5 * W, simd.fma(x, y, simd.splat(np.float32(0.5))))
    return out


@numba.njit
def ones(a):
    x = simd.load(a, 0)
    out = np.empty(2 * W, np.float32)
    simd.store(out, 0, simd.vround(x))
    simd.store(out, W, simd.vexp2(simd.vround(x)))
    return out, simd.vsum(x), simd.vmax_element(x), simd.first_element(x)


def test_every_vector_operation_equals_numpy():
    plus, times, over, higher, lower, fma = twos(A, B).reshape(6, W)
    np.testing.assert_array_equal(plus, A + B)
    np.testing.assert_array_equal(times, A * B)
    np.testing.assert_array_equal(over, A / B)
    np.testing.assert_array_equal(higher, np.maximum(A, B))
    np.testing.assert_array_equal(lower, np.minimum(A, B))
    exact = (A.astype(np.float64) * B.astype(np.float64) + 0.5).astype(np.float32)
    np.testing.assert_array_equal(fma, exact if simd.HAS_FMA else A * B + np.float32(0.5))


def test_a_sum_has_the_documented_order():
    (nearest, power), total, highest, first = (lambda out, *rest: (out.reshape(2, W), *rest))(*ones(A))
    np.testing.assert_array_equal(nearest, np.rint(A))
    np.testing.assert_array_equal(power, 2.0 ** np.rint(A))
    a = A if W == 8 else A[:8] + A[8:]
    assert total == ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]))
    assert highest == 11
    assert first == 1.5


@numba.njit
def first_ones(a, count, b):
    out = np.empty(W, np.float32)
    simd.store(out, 0, simd.select_first(simd.load(a, 0), count, simd.load(b, 0)))
    return out


@pytest.mark.parametrize("count", [-3, 0, 1, W - 1, W, W + 5])
def test_select_first_elements(count):
    np.testing.assert_array_equal(first_ones(A, count, B), np.where(np.arange(W) < count, A, B))


def test_min_and_max_keep_nan_in_the_second_argument():
    nan = np.full(W, np.nan, np.float32)
    _, _, _, higher, lower, _ = twos(A, nan).reshape(6, W)
    assert np.isnan(higher).all()
    assert np.isnan(lower).all()


@numba.njit
def fetched(a):
    simd.prefetch(a, 10**6)
    return simd.scalar_fma(a[0], a[1], a[2])


def test_prefetching_outside_an_array_is_harmless():
    assert fetched(A) == np.float32(1.5 * -2 + 3.25)


def test_bounds_are_checked_with_numba_boundscheck():
    """In a new process, because the variable is read at import."""
    program = """
import numba, numpy as np
from unspool.engine import simd
@numba.njit
def read(a, i): return simd.vsum(simd.load(a, i))
assert read(np.ones(simd.WIDTH + 1, np.float32), 1) == simd.WIDTH
for wrong in (2, -1):
    try: read(np.ones(simd.WIDTH + 1, np.float32), wrong)
    except IndexError: continue
    raise SystemExit("read outside an array")
"""
    env = os.environ | {"NUMBA_BOUNDSCHECK": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["x86_64", "aarch64"])
def test_missing_instructions_are_detected(monkeypatch, name):
    monkeypatch.setattr(simd.binding, "get_default_triple", lambda: f"{name}-unknown-linux")
    monkeypatch.setattr(simd, "cpu_has", lambda _: False)
    assert simd.has_instruction("fma") is (name == "aarch64")


def test_numba_cpu_name_alone_uses_the_features_of_this_processor():
    program = "from unspool.engine import simd; print(simd.WIDTH, simd.HAS_FMA)"

    def run(**env):
        plain = {name: it for name, it in os.environ.items() if not name.startswith("NUMBA_CPU")}
        return subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=plain | env
        ).stdout

    name = binding.get_host_cpu_name()
    if name == "generic":  # this version of LLVM does not know the processor, and numba drops its features
        name = "haswell" if platform.machine() == "x86_64" else "cortex-a72"
    assert run(NUMBA_CPU_NAME=name) == run()
    assert run(NUMBA_CPU_NAME="generic") == "8 False\n"
