import numpy as np
import pytest

from unspool.basis.arrays import as_distribution
from unspool.basis.solver.distribution import Distribution
from unspool.basis.solver.lewis_metric import (
    HARD_THRESHOLD,
    LewisMetric,
    select_all,
    select_head,
    select_head_and_sample,
)
from unspool.basis.solver.whitening import whiten


def leverages(rows):
    """Of XᵀΩX with p²/ω as ℓ₁ Lewis weights want it: ω = p²/leverage is their fixed point."""
    X = rows.X_SK.astype(np.float64)
    scaled = X * np.sqrt(rows.omega_S)[:, None]
    return np.einsum("sk,kl,sl->s", scaled, np.linalg.inv(scaled.T @ scaled), scaled)


def test_weights_by_hand():
    # κ = 2 (m = 2): κp = (1, .6, .4), and ω·κ² = max(κp, 1)·κp
    white = whiten(np.array([[0.55], [0.71], [0.29]]))
    dist = Distribution(np.array([0.5, 0.3, 0.2]), 2)
    rows = select_head(white, dist, 3)
    assert dist.kappa == pytest.approx(2)
    assert rows.mass_S.tolist() == pytest.approx([1, 0.6, 0.4])
    assert rows.omega_S.tolist() == pytest.approx([1, 0.6, 0.4])
    assert rows.n_hard == 0
    assert rows.covers_vocabulary


def test_the_closed_form_is_near_the_fixed_point_for_random_rows():
    """Lewis weights of p̂ⱼxⱼ satisfy leverage = κ·p̂ where that is below 1, and 1 above."""
    rng = np.random.default_rng(0)
    white = whiten(rng.standard_normal((4000, 30)))
    p = rng.dirichlet(np.full(4000, 0.2))
    dist = Distribution(as_distribution(p, 4000), 31)
    rows = select_all(white, dist)
    light = (rows.mass_S > 1e-3) & (rows.mass_S < 1)
    ratio = leverages(rows)[light] / rows.mass_S[light]
    assert np.median(ratio) == pytest.approx(1, abs=0.3)
    assert np.percentile(np.abs(np.log(ratio)), 90) < 1


def test_hard_tokens_are_the_first_and_held_at_zero(white, dist):
    metric = LewisMetric(white, dist, select_head(white, dist, 600))
    assert metric.n_hard == int(np.count_nonzero(dist.head_N * dist.kappa > HARD_THRESHOLD)) > 0
    e = np.random.default_rng(0).standard_normal((white.X_VK.shape[1], 3)).astype(np.float32)
    lam = metric.solve(e)
    assert np.abs(metric.hard_HK @ lam).max() < 1e-3 * np.abs(lam).max()
    assert np.abs(metric.hard_HK @ metric.solve_HK.T - np.eye(metric.n_hard)).max() < 1e-3


def test_solve_is_the_constrained_inverse(white, dist):
    metric = LewisMetric(white, dist, select_head(white, dist, 600))
    rows, X = metric.rows, metric.rows.X_SK.astype(np.float64)
    M = (X * rows.omega_S[:, None]).T @ X
    e = np.random.default_rng(0).standard_normal(len(M))
    lam = metric.solve(e.astype(np.float32)[:, None])[:, 0].astype(np.float64)
    n_hard = metric.hard_HK.astype(np.float64)
    full = np.block([[M, n_hard.T], [n_hard, np.zeros((len(n_hard), len(n_hard)))]])
    expected = np.linalg.solve(full, np.append(e, np.zeros(len(n_hard))))[: len(M)]
    assert lam == pytest.approx(expected, rel=0.02, abs=1e-3 * np.abs(expected).max())


def test_a_metric_may_grow_from_a_smaller_one(white, dist):
    small = LewisMetric(white, dist, select_head(white, dist, 300))
    grown = LewisMetric(white, dist, select_head(white, dist, 900), small)
    fresh = LewisMetric(white, dist, select_head(white, dist, 900))
    e = np.ones((white.X_VK.shape[1], 1), dtype=np.float32)
    assert grown.solve(e) == pytest.approx(fresh.solve(e), rel=1e-2)


def test_what_each_selection_can_prove(white, dist):
    assert (select_head(white, dist, 300).covers_vocabulary, select_head(white, dist, 300).is_unsampled) == (
        False,
        True,
    )
    sampled = select_head_and_sample(white, dist, 300, 500)
    assert (sampled.covers_vocabulary, sampled.is_unsampled) == (True, False)
    assert sampled.mass_S.sum() + (dist.head_N[: sampled.n_hard] * dist.kappa).sum() == pytest.approx(
        dist.kappa, rel=1e-4
    )
    whole = select_all(white, dist)
    assert whole.X_SK is white.X_VK
    assert (whole.mass_S[dist.order_N[: whole.n_hard]] == 0).all()


def test_dependent_hard_rows_do_no_harm():
    W = np.repeat(np.random.default_rng(0).standard_normal((40, 5)), 2, axis=0)
    p = as_distribution(np.array([0.45, 0.45, *np.full(78, 0.1 / 78)]), 80)
    white = whiten(W)
    metric = LewisMetric(white, Distribution(p, 6), select_head(white, Distribution(p, 6), 80))
    assert np.isfinite(metric.solve(np.ones((6, 1), dtype=np.float32))).all()


def test_rows_span_unless_one_of_them_alone_holds_a_direction(model, white, dist):
    assert LewisMetric(white, dist, select_head(white, dist, 400)).is_full_rank
    W = model.W.astype(np.float64)
    W[5999, 0] = 1e9
    p = np.append(np.delete(dist.p, 5999), 1e-30)
    hidden = whiten(W)
    peaked = Distribution(p / p.sum(), hidden.X_VK.shape[1], head=4096)
    assert not LewisMetric(hidden, peaked, select_head(hidden, peaked, 400)).is_full_rank
    assert not LewisMetric(white, dist, select_head(white, dist, 9)).is_full_rank  # 9 rows, 25 directions
