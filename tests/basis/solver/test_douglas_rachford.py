import numpy as np
import pytest

from unspool.basis.arrays import as_distribution
from unspool.basis.linear_program import solve_linear_program
from unspool.basis.solver.distribution import Distribution
from unspool.basis.solver.douglas_rachford import TARGET_FACTOR, DouglasRachford, LeastSquares
from unspool.basis.solver.lewis_metric import LewisMetric, select_all, select_head, select_head_and_sample
from unspool.basis.solver.whitening import whiten


def test_the_papers_example(example):
    white = whiten(example.W)
    dist = Distribution(as_distribution(example.p, 3), 2)
    metric = LewisMetric(white, dist, select_head(white, dist, 3))
    search = DouglasRachford(white, dist, metric, np.array([0, 1, 2]), 0.9)
    for _ in range(40):
        search.iterate()
    balanced, upper = search.required_box_scale() <= 1, search.upper_bounds() / search.own_mass_Q
    assert balanced.tolist() == [True, False, False]
    assert (upper < 1).tolist() == [False, True, True]


def test_a_balances_the_token_at_every_iteration(white, dist):
    metric = LewisMetric(white, dist, select_head(white, dist, 500))
    tokens = dist.order_N[[0, 2, 40, 300, 3000]]  # hard, hard, soft, soft, not among the rows
    search = DouglasRachford(white, dist, metric, tokens, 0.2)
    for _ in range(5):
        search.iterate()
        y = search.multipliers(np.arange(5))
        own = dist.ranks(tokens)
        assert all(y[r, q] == 0 for q, r in enumerate(own) if r < 500)
        missing = search.target_KQ - metric.rows.X_SK.T @ search.a_SQ
        n_hard = metric.solve_HK @ missing
        for q, r in enumerate(own):
            if r < metric.n_hard:
                assert abs(n_hard[r, q]) < 2e-2 * TARGET_FACTOR * search.own_mass_Q[q]
        left = missing - metric.hard_HK.T @ n_hard
        assert np.abs(left).max() < 1e-2 * np.abs(search.target_KQ).max()


def test_both_sides_enclose_the_optimum(random_problem):
    """goal/stretch is a lower bound of F and f(λ) an upper one: HiGHS's F lies between."""
    rng, seen = np.random.default_rng(2), 0
    while seen < 15:
        it = random_problem(rng)
        white = whiten(it.W)
        if white.X_VK.shape[1] < 3 or len(it.p) < 40 or (np.sort(it.p)[-4:] > 0.2).any():
            continue
        dist = Distribution(as_distribution(it.p, len(it.p)), white.X_VK.shape[1])
        search = DouglasRachford(
            white,
            dist,
            LewisMetric(white, dist, select_all(white, dist)),
            np.array([it.token]),
            it.tau / (1 - it.tau),
        )
        theta = solve_linear_program(it.W, it.p, it.token, it.tau).theta
        for _ in range(60):
            search.iterate()
            required_box_scale = search.required_box_scale()[0]
            assert required_box_scale > 1 or 1 / required_box_scale <= theta * 1.01
            assert search.upper_bounds()[0] >= theta * search.own_mass_Q[0] * 0.99
        seen += 1


def test_columns_are_independent_of_each_other(white, dist):
    metric = LewisMetric(white, dist, select_head(white, dist, 500))
    tokens = dist.order_N[[1, 30, 200]]
    together = DouglasRachford(white, dist, metric, tokens, 0.2)
    alone = DouglasRachford(white, dist, metric, tokens[1:2], 0.2)
    for _ in range(6):
        together.iterate()
        alone.iterate()
    together.keep_columns(np.array([1]))
    together.iterate()
    alone.iterate()
    assert together.tokens_Q.tolist() == [tokens[1]]
    np.testing.assert_allclose(together.v_SQ, alone.v_SQ, rtol=1e-3, atol=1e-4)
    assert together.required_box_scale() == pytest.approx(alone.required_box_scale(), rel=1e-3)


def test_a_search_over_all_rows_goes_on_from_a_sampled_one(white, dist):
    token, slope = dist.order_N[20:21], 0.05  # accepted, as it is until c = 0.1
    sampled = DouglasRachford(
        white, dist, LewisMetric(white, dist, select_head_and_sample(white, dist, 400, 800)), token, slope
    )
    for _ in range(30):
        sampled.iterate()
    whole = LewisMetric(white, dist, select_all(white, dist))
    cold, warm = (DouglasRachford(white, dist, whole, token, slope) for _ in range(2))
    warm.resume(0, sampled.snapshot(0))
    for _ in range(3):
        cold.iterate()
        warm.iterate()
    assert warm.upper_bounds()[0] < cold.upper_bounds()[0]
    mass = dist.p * dist.kappa
    y, far = warm.box_sides(0, mass)
    assert (y >= -mass).all()
    assert (y <= slope * mass * (1 + 1e-6)).all()
    at_an_end = far[mass > 0] != 0
    assert at_an_end.mean() > 0.9


def test_a_glob_is_what_settled_rows_have_balanced_already(white, dist):
    metric, token = LewisMetric(white, dist, select_head(white, dist, 500)), dist.order_N[[40]]
    glob = 0.3 * white.X_VK[dist.order_N[[700]]].T
    search = DouglasRachford(white, dist, metric, token, 0.2, glob)
    for _ in range(5):
        search.iterate()
    missing = TARGET_FACTOR * search.own_mass_Q * search.x_KQ - glob - metric.rows.X_SK.T @ search.a_SQ
    left = missing - metric.hard_HK.T @ (metric.solve_HK @ missing)
    assert np.abs(left).max() < 1e-2 * np.abs(search.target_KQ).max()


def test_how_far_lambda_travelled_says_where_rows_within_their_box_are(white, dist):
    metric, token = LewisMetric(white, dist, select_head(white, dist, 500)), dist.order_N[[40]]
    search = DouglasRachford(white, dist, metric, token, 50.0)  # a box that few rows meet an end of
    for _ in range(3):
        search.iterate()
    rows, inside = metric.rows, np.abs(search.v_SQ[:, 0]) < 0.2 * metric.rows.mass_S
    inside &= rows.tokens_S != token  # its own row is no part of its problem
    assert inside.sum() > 20
    said = rows.omega_S * (rows.X_SK @ search.snapshot(0).lam_sum_K)
    np.testing.assert_allclose(said[inside], search.v_SQ[inside, 0], atol=1e-3 * np.abs(said).max())


@pytest.mark.parametrize("rank", [3, 400])
def test_it_minimises_what_it_says(white, dist, rank):
    token = int(dist.order_N[rank])
    lam = LeastSquares(white, dist).solve(np.array([token]))[:, 0]
    X0 = white.X_VK[dist.order_N[:128]].astype(np.float64)
    omega = np.maximum(dist.head_N[:128] ** 2, dist.head_N[:128] / dist.kappa)
    x = white.X_VK[token].astype(np.float64)
    quadratic = (X0 * omega[:, None]).T @ X0 + np.eye(len(x)) * dist.tail_mass_N[128] / dist.kappa
    expected = np.linalg.solve(quadratic, x)
    assert lam / (lam @ x) == pytest.approx(expected / (expected @ x), rel=1e-4, abs=1e-6)


def test_tokens_side_by_side_are_tokens_one_by_one(white, dist):
    ls, tokens = LeastSquares(white, dist), dist.order_N[[0, 5, 200, 700]]
    together = ls.solve(tokens)
    for q, token in enumerate(tokens):
        assert together[:, q] == pytest.approx(ls.solve(np.array([token]))[:, 0])


def test_a_row_that_is_independent_of_the_others_gets_s_zero_on_them():
    W = np.eye(4)
    white = whiten(W)
    dist = Distribution(as_distribution(np.array([0.4, 0.3, 0.2, 0.1]), 4), white.X_VK.shape[1])
    lam = LeastSquares(white, dist).solve(np.array([2]))[:, 0]
    s = white.X_VK.astype(np.float64) @ lam
    assert np.abs(np.delete(s / s[2], 2)).max() < 1e-4
