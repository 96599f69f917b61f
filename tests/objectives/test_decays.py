import math

import pytest

from unspool.objectives.scheduled_sampling import DECAYS, Exponential, InverseSigmoid, Linear


def test_by_hand():
    assert [Linear(1.0, 0.25, 0.3)(i) for i in range(5)] == pytest.approx([1, 0.75, 0.5, 0.3, 0.3])
    assert [Exponential(0.5)(i) for i in range(4)] == [1, 0.5, 0.25, 0.125]
    assert InverseSigmoid(10.0)(0) == pytest.approx(10 / 11)
    assert InverseSigmoid(10.0)(10) == pytest.approx(10 / (10 + math.e))


@pytest.mark.parametrize("kind", DECAYS)
def test_it_falls_and_stays_a_probability(kind):
    values = [DECAYS[kind]()(i) for i in (0, 1, 10, 1000, 10**9)]
    assert values == sorted(values, reverse=True)
    assert all(0 <= it <= 1 for it in values)


def test_half_of_an_inverse_sigmoid():
    assert InverseSigmoid(50.0)(round(50 * math.log(50))) == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (Linear, {"begin": 1.1}),
        (Linear, {"floor": -0.1}),
        (Linear, {"slope": -1.0}),
        (Exponential, {"k": 1.5}),
        (InverseSigmoid, {"k": 0.5}),
    ],
)
def test_what_is_no_decay_is_refused(kind, wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        kind(**wrong)
