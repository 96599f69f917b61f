import numpy as np
import pytest

from unspool.basis import BasisTest, calibrate_kappa
from unspool.basis.calibrate import best_threshold


def test_the_best_threshold_by_hand():
    assert best_threshold([(1.0, False), (4.0, True), (9.0, True)]) == pytest.approx(2.0)
    assert best_threshold(
        [(9.0, True), (1.0, False), (2.0, True), (3.0, False), (4.0, False)]
    ) == pytest.approx(6.0)
    assert best_threshold([(3.0, True)]) == 3.0


def room(n=6):
    dice = np.random.default_rng(0)
    return BasisTest(dice.normal(size=(80, 6))), dice.dirichlet(np.full(80, 0.7), size=n)


def test_a_fitted_rule_agrees_better_than_a_coin_and_counts_add_up():
    test, p = room()
    found = calibrate_kappa(test, p, [0.3, 0.1], tokens=5)
    assert found.fitted > 0.7
    assert found.held_out > 0.6
    assert found.rule.m == test.m
    np.testing.assert_allclose(found.rule.slopes, [1 / 9, 3 / 7])
    assert set(found.held_out_by_tau) == {0.1, 0.3}
    assert 0 < min(found.counts) <= max(found.counts) <= 3 * 2 * 5


def test_the_same_seed_gives_the_same_rule():
    test, p = room(4)
    assert test.calibrate_kappa(p, [0.2], tokens=3, seed=1) == calibrate_kappa(
        test, p, [0.2], tokens=3, seed=1
    )


def test_what_cannot_be_fitted_on_is_refused():
    test, p = room(2)
    with pytest.raises(ValueError, match="at least two"):
        calibrate_kappa(test, p[:1], [0.1])
    with pytest.raises(ValueError, match="fit is 1"):
        calibrate_kappa(test, p, [0.1], fit=1.0)
    with pytest.raises(ValueError, match="nothing to fit on"):
        calibrate_kappa(test, np.eye(80)[:2], [0.1])
