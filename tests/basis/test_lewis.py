import numpy as np
import pytest

from unspool.basis.distribution import Distribution
from unspool.basis.lewis import Metric, everything, head, head_and_sample
from unspool.basis.whitening import whiten


def room(v=400, d=5, sharp=1.0, seed=0):
    dice = np.random.default_rng(seed)
    white = whiten(dice.normal(size=(v, d)))
    p = np.exp(sharp * dice.normal(size=v))
    return white, Distribution(p / p.sum(), white.X_VK.shape[1])


def test_weights_of_four_tokens():
    white = whiten(np.array([[1.0], [-1.0], [2.0], [0.0]]))
    dist = Distribution(np.array([0.5, 0.25, 0.15, 0.1]), 2)  # κ = 2: κp̂ = 1, 0.5, 0.3, 0.2
    rows = head(white, dist, 3)
    assert rows.tokens_S.tolist() == [0, 1, 2]
    np.testing.assert_allclose(rows.mass_S, [1, 0.5, 0.3], rtol=1e-6)
    np.testing.assert_allclose(rows.omega_S, [1, 0.5, 0.3], rtol=1e-6)
    assert rows.real
    assert not rows.complete
    assert head(white, dist, 4).complete


def test_leverages_sum_to_the_equalities_and_none_exceeds_one():
    _, dist = room()
    mass = dist.p * dist.kappa
    assert np.minimum(mass, 1).sum() == pytest.approx(6)


def test_a_sample_stands_for_the_rest():
    white, dist = room()
    rows = head_and_sample(white, dist, 50, 100)
    assert rows.head == 50
    assert rows.complete
    assert not rows.real
    assert rows.mass_S.sum() == pytest.approx(dist.kappa, rel=1e-5)


def test_hard_tokens_are_held_at_zero():
    white = room()[0]
    p = np.append([0.5, 0.45], np.full(398, 0.05 / 398))  # κ = 4/0.05: κp̂ = 40 and 36
    dist = Distribution(p, 6)
    rows = everything(white, dist)
    assert rows.hard == 2
    assert not rows.mass_S[dist.order_N[: rows.hard]].any()
    metric = Metric(white, dist, rows)
    lam = metric.solve(np.random.default_rng(1).normal(size=(6, 3)).astype(np.float32))
    np.testing.assert_allclose(metric.hard_HK @ lam, 0, atol=1e-3 * np.abs(lam).max())
    np.testing.assert_allclose(metric.hard_HK @ metric.solve_HK.T, np.eye(rows.hard), atol=1e-3)


def test_without_hard_tokens_solve_inverts_the_gram_matrix():
    white, dist = room(sharp=0.1)
    rows = head(white, dist, 400)
    assert rows.hard == 0
    e = np.random.default_rng(2).normal(size=(6, 2)).astype(np.float32)
    gram = (rows.X_SK.T * rows.omega_S).astype(np.float64) @ rows.X_SK
    np.testing.assert_allclose(
        Metric(white, dist, rows).solve(e), np.linalg.solve(gram, e), rtol=1e-3, atol=1e-5
    )


def test_a_smaller_metric_lends_its_part():
    white, dist = room()
    small = Metric(white, dist, head(white, dist, 60))
    e = np.ones((6, 1), dtype=np.float32)
    rows = head(white, dist, 200)
    np.testing.assert_allclose(
        Metric(white, dist, rows, small).solve(e), Metric(white, dist, rows).solve(e), rtol=1e-3, atol=1e-6
    )
