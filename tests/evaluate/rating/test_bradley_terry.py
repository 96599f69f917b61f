import numpy as np
import pytest
from scipy.optimize import minimize

from unspool.evaluate.rating.rater_agreement import bradley_terry_strengths


def test_two_systems_by_hand():
    a, b = bradley_terry_strengths([[0, 3], [1, 0]], prior=0)
    assert (a / b, a * b) == (pytest.approx(3), pytest.approx(1))
    a, b = bradley_terry_strengths([[0, 3], [1, 0]], prior=0.5)
    assert a / b == pytest.approx(3.5 / 1.5)


@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_maximum_of_the_likelihood(seed):
    wins = np.random.default_rng(seed).integers(1, 20, size=(4, 4)).astype(float)
    np.fill_diagonal(wins, 0)

    def loss(theta):
        rows = np.logaddexp(theta[:, None], theta[None, :]) - theta[:, None]
        return (wins * rows).sum()

    best = minimize(loss, np.zeros(4), tol=1e-14).x
    expected = np.exp(best - best.mean())
    assert bradley_terry_strengths(wins.tolist(), prior=0) == pytest.approx(expected, rel=1e-4)


def test_true_strengths_are_found():
    dice, true = np.random.default_rng(0), np.array([4.0, 1.0, 0.25])
    wins = np.zeros((3, 3))
    for i in range(3):
        for j in range(i):
            wins[i, j] = dice.binomial(20000, true[i] / (true[i] + true[j]))
            wins[j, i] = 20000 - wins[i, j]
    assert bradley_terry_strengths(wins.tolist()) == pytest.approx(true, rel=0.03)


def test_a_system_that_always_wins_needs_a_prior():
    wins = [[0, 5, 5], [0, 0, 3], [0, 2, 0]]
    assert np.isfinite(bradley_terry_strengths(wins)).all()
    with pytest.raises(ValueError, match="have lost once"):
        bradley_terry_strengths(wins, prior=0)
    with pytest.raises(ValueError, match="do not connect all systems"):
        bradley_terry_strengths([[0, 0], [0, 0]])


@pytest.mark.parametrize("wins", [[[0]], [[0, 1]], [[0, -1], [1, 0]], [[0, 1], [1, 0], [0, 0]]])
def test_an_invalid_table_raises(wins):
    with pytest.raises(ValueError, match="wins is"):
        bradley_terry_strengths(wins)
