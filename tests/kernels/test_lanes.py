import os
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
    simd.store(out, 0, simd.plus(x, y))
    simd.store(out, W, simd.times(x, y))
    simd.store(out, 2 * W, simd.over(x, y))
    simd.store(out, 3 * W, simd.higher(x, y))
    simd.store(out, 4 * W, simd.lower(x, y))
    simd.store(out, 5 * W, simd.fma(x, y, simd.spread(np.float32(0.5))))
    return out


@numba.njit
def ones(a):
    x = simd.load(a, 0)
    out = np.empty(2 * W, np.float32)
    simd.store(out, 0, simd.nearest(x))
    simd.store(out, W, simd.two_to_the(simd.nearest(x)))
    return out, simd.total(x), simd.highest(x), simd.first(x)


def test_every_operation_does_to_all_lanes_what_numpy_does():
    plus, times, over, higher, lower, fma = twos(A, B).reshape(6, W)
    np.testing.assert_array_equal(plus, A + B)
    np.testing.assert_array_equal(times, A * B)
    np.testing.assert_array_equal(over, A / B)
    np.testing.assert_array_equal(higher, np.maximum(A, B))
    np.testing.assert_array_equal(lower, np.minimum(A, B))
    exact = (A.astype(np.float64) * B.astype(np.float64) + 0.5).astype(np.float32)
    np.testing.assert_array_equal(fma, exact if simd.FUSES else A * B + np.float32(0.5))


def test_a_sum_is_made_in_the_order_that_is_written_down():
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
    simd.store(out, 0, simd.only_first(simd.load(a, 0), count, simd.load(b, 0)))
    return out


@pytest.mark.parametrize("count", [-3, 0, 1, W - 1, W, W + 5])
def test_the_first_lanes_of_one_and_the_others_of_another(count):
    np.testing.assert_array_equal(first_ones(A, count, B), np.where(np.arange(W) < count, A, B))


def test_nan_stays_where_it_is_second():
    nan = np.full(W, np.nan, np.float32)
    _, _, _, higher, lower, _ = twos(A, nan).reshape(6, W)
    assert np.isnan(higher).all()
    assert np.isnan(lower).all()


@numba.njit
def fetched(a):
    simd.prefetch(a, 10**6)
    return simd.fused(a[0], a[1], a[2])


def test_a_prefetch_outside_of_memory_does_no_harm():
    assert fetched(A) == np.float32(1.5 * -2 + 3.25)


def test_bounds_are_looked_at_where_numba_is_asked_to():
    """In a process of its own: the switch is read when the room is first entered."""
    program = """
import numba, numpy as np
from unspool.engine import lanes
@numba.njit
def read(a, i): return lanes.total(lanes.load(a, i))
assert read(np.ones(lanes.WIDTH + 1, np.float32), 1) == lanes.WIDTH
for wrong in (2, -1):
    try: read(np.ones(lanes.WIDTH + 1, np.float32), wrong)
    except IndexError: continue
    raise SystemExit("read outside an array")
"""
    env = os.environ | {"NUMBA_BOUNDSCHECK": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["x86_64", "aarch64"])
def test_a_processor_without_an_instruction_is_found(monkeypatch, name):
    monkeypatch.setattr(simd.binding, "get_default_triple", lambda: f"{name}-unknown-linux")
    monkeypatch.setattr(simd, "has", lambda _: False)
    assert simd.has_instruction("fma") is (name == "aarch64")


def test_a_processor_name_alone_compiles_for_the_features_at_hand():
    program = "from unspool.engine import lanes; print(lanes.WIDTH, lanes.FUSES)"

    def run(**env):
        plain = {name: it for name, it in os.environ.items() if not name.startswith("NUMBA_CPU")}
        return subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=plain | env
        ).stdout

    name = binding.get_host_cpu_name()
    assert run(NUMBA_CPU_NAME=name) == run()
    assert run(NUMBA_CPU_NAME="generic") == "8 False\n"
