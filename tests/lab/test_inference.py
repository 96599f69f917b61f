import math

import numpy as np
import pytest

from unspool.lab.inference import estimate, power, t_interval, typical_values


def test_typical_values_by_hand():
    # Six seeds: 63 subset means make 64 parts, and one of them may be left out at each end.
    values = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
    assert typical_values(values) == (1.0, 32.0)
    found = estimate([*values])
    assert (found.mean, found.low, found.high, found.seeds, found.units) == (10.5, 1.0, 32.0, 6, 6)
    assert str(found) == "10.5 (1 to 32)"


def test_fewer_than_six_seeds_have_no_interval():
    assert typical_values(np.arange(5.0)) == (-math.inf, math.inf)
    assert str(estimate([1.0, 2.0])) == "1.5 (too few seeds for an interval)"
    assert t_interval([1.0]) == (-math.inf, math.inf)


def test_t_interval_by_hand():
    # t₀.₉₇₅(1) = 12.706, and the standard error of (1, 3) is 1.
    assert t_interval([1.0, 3.0]) == pytest.approx((2 - 12.706, 2 + 12.706), abs=1e-3)


def test_equal_numbers_have_an_interval_without_width():
    assert estimate([0.5] * 10).low == estimate([0.5] * 10).high == 0.5
    found = estimate([[0.5, 0.5]] * 10, crossed=True)
    assert (found.low, found.high) == pytest.approx((0.5, 0.5))


def coverage(draw, crossed=False, repeats=200):
    """The share of intervals that contain 0, and the mean width."""
    found = [estimate(draw(np.random.default_rng(seed)), crossed=crossed) for seed in range(repeats)]
    return sum(it.low <= 0 <= it.high for it in found) / repeats


def test_95_of_100_intervals_over_seeds_contain_the_truth():
    assert 0.91 <= coverage(lambda rng: rng.standard_normal(10), repeats=400) <= 0.98


def test_95_of_100_intervals_of_many_seeds_contain_the_truth():
    assert coverage(lambda rng: rng.standard_normal(20), repeats=100) >= 0.90


@pytest.mark.parametrize("between", [0.0, 1.0])
def test_intervals_of_units_within_seeds_contain_the_truth(between):
    def draw(rng):
        return between * rng.standard_normal((10, 1)) + rng.standard_normal((10, 8))

    assert coverage(draw) >= 0.93


def test_intervals_of_common_units_contain_the_truth():
    def draw(rng):
        return rng.standard_normal((1, 8)) + 0.3 * rng.standard_normal((10, 8))

    assert coverage(draw, crossed=True) >= 0.92
    # Taken for units of each seed, common units make intervals much too narrow.
    assert coverage(draw, crossed=False) < 0.7


def test_power_rises_with_effect_and_seeds():
    assert power(0.0, 1.0, 10) == pytest.approx(0.025)
    assert power(1.0, 1.0, 10) < power(1.5, 1.0, 10)
    assert power(1.0, 1.0, 10) < power(1.0, 1.0, 20)
