import math

import pytest
from hypothesis import given, strategies as st

from unspool.training.optim import SCHEDULES, Constant, Cosine, InverseSqrt


def test_constant_by_hand():
    assert [Constant(4)(t, 10) for t in (1, 2, 4, 5, 10)] == [0.25, 0.5, 1.0, 1.0, 1.0]
    assert Constant()(1, 10) == 1.0


def test_inverse_sqrt_by_hand():
    schedule = InverseSqrt(4)
    assert [schedule(t, 100) for t in (1, 4, 16, 64)] == [0.25, 1.0, 0.5, 0.25]


def test_inverse_sqrt_is_vaswanis_up_to_the_peak():
    width, warmup = 512, 4000
    paper = lambda t: width**-0.5 * min(t**-0.5, t * warmup**-1.5)  # noqa: E731
    for t in (1, 100, 4000, 100000):
        assert InverseSqrt(warmup)(t, 0) == pytest.approx(paper(t) / paper(warmup))


def test_cosine_by_hand():
    schedule = Cosine(warmup=2, floor=0.2)
    assert schedule(1, 10) == 0.5
    assert schedule(2, 10) == 1.0
    assert schedule(6, 10) == pytest.approx(0.6)  # half-way
    assert schedule(4, 10) == pytest.approx(0.2 + 0.8 * (1 + math.cos(math.pi / 4)) / 2)
    assert schedule(10, 10) == pytest.approx(0.2)
    assert schedule(99, 10) == pytest.approx(0.2)  # a run that was made longer does not rise again


@given(
    st.sampled_from([Constant(3), InverseSqrt(7), Cosine(5, 0.0), Cosine(0)]),
    st.integers(1, 200),
    st.integers(1, 200),
)
def test_never_above_the_peak_and_never_below_nothing(schedule, update, updates):
    assert 0.0 <= schedule(update, updates) <= 1.0


@pytest.mark.parametrize(
    "make", [lambda: Constant(-1), lambda: InverseSqrt(0), lambda: Cosine(-1), lambda: Cosine(1, 1.5)]
)
def test_impossible_settings_are_refused(make):
    with pytest.raises(ValueError, match=r"warmup|floor"):
        make()


def test_names():
    assert list(SCHEDULES.items()) == [
        ("constant", Constant),
        ("cosine", Cosine),
        ("inverse_sqrt", InverseSqrt),
    ]
