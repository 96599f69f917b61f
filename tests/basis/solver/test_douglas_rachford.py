import numpy as np
import pytest

from unspool.basis.arrays import probabilities
from unspool.basis.linear_program import reference
from unspool.basis.solver.distribution import Distribution
from unspool.basis.solver.douglas_rachford import AIM, DouglasRachford
from unspool.basis.solver.lewis_metric import Metric, everything, head, head_and_sample
from unspool.basis.solver.whitening import whiten


def test_the_papers_example(example):
    white = whiten(example.W)
    dist = Distribution(probabilities(example.p, 3), 2)
    metric = Metric(white, dist, head(white, dist, 3))
    search = DouglasRachford(white, dist, metric, np.array([0, 1, 2]), 0.9)
    for _ in range(40):
        search.iterate()
    balanced, upper = search.stretch() <= 1, search.upper() / search.goal_Q
    assert balanced.tolist() == [True, False, False]
    assert (upper < 1).tolist() == [False, True, True]


def test_a_balances_the_token_at_every_iteration(white, dist):
    metric = Metric(white, dist, head(white, dist, 500))
    tokens = dist.order_N[[0, 2, 40, 300, 3000]]  # hard, hard, soft, soft, not among the rows
    search = DouglasRachford(white, dist, metric, tokens, 0.2)
    for _ in range(5):
        search.iterate()
        y = search.multipliers(np.arange(5))
        own = dist.ranks(tokens)
        assert all(y[r, q] == 0 for q, r in enumerate(own) if r < 500)
        missing = search.aim_KQ - metric.rows.X_SK.T @ search.a_SQ
        hard = metric.solve_HK @ missing
        for q, r in enumerate(own):
            if r < metric.hard:
                assert abs(hard[r, q]) < 2e-2 * AIM * search.goal_Q[q]
        left = missing - metric.hard_HK.T @ hard
        assert np.abs(left).max() < 1e-2 * np.abs(search.aim_KQ).max()


def test_both_sides_enclose_the_optimum(random_problem):
    """goal/stretch is a lower bound of F and f(λ) an upper one: HiGHS's F lies between."""
    dice, seen = np.random.default_rng(2), 0
    while seen < 15:
        it = random_problem(dice)
        white = whiten(it.W)
        if white.X_VK.shape[1] < 3 or len(it.p) < 40 or (np.sort(it.p)[-4:] > 0.2).any():
            continue
        dist = Distribution(probabilities(it.p, len(it.p)), white.X_VK.shape[1])
        search = DouglasRachford(
            white,
            dist,
            Metric(white, dist, everything(white, dist)),
            np.array([it.token]),
            it.tau / (1 - it.tau),
        )
        theta = reference(it.W, it.p, it.token, it.tau).theta
        for _ in range(60):
            search.iterate()
            stretch = search.stretch()[0]
            assert stretch > 1 or 1 / stretch <= theta * 1.01
            assert search.upper()[0] >= theta * search.goal_Q[0] * 0.99
        seen += 1


def test_columns_are_independent_of_each_other(white, dist):
    metric = Metric(white, dist, head(white, dist, 500))
    tokens = dist.order_N[[1, 30, 200]]
    together = DouglasRachford(white, dist, metric, tokens, 0.2)
    alone = DouglasRachford(white, dist, metric, tokens[1:2], 0.2)
    for _ in range(6):
        together.iterate()
        alone.iterate()
    together.keep(np.array([1]))
    together.iterate()
    alone.iterate()
    assert together.tokens_Q.tolist() == [tokens[1]]
    np.testing.assert_allclose(together.v_SQ, alone.v_SQ, rtol=1e-3, atol=1e-4)
    assert together.stretch() == pytest.approx(alone.stretch(), rel=1e-3)


def test_a_search_over_all_rows_goes_on_from_a_sampled_one(white, dist):
    token, slope = dist.order_N[20:21], 0.05  # accepted, as it is until c = 0.1
    sampled = DouglasRachford(
        white, dist, Metric(white, dist, head_and_sample(white, dist, 400, 800)), token, slope
    )
    for _ in range(30):
        sampled.iterate()
    whole = Metric(white, dist, everything(white, dist))
    cold, warm = (DouglasRachford(white, dist, whole, token, slope) for _ in range(2))
    warm.resume(0, sampled.snapshot(0))
    for _ in range(3):
        cold.iterate()
        warm.iterate()
    assert warm.upper()[0] < cold.upper()[0]
    mass = dist.p * dist.kappa
    y, far = warm.sides(0, mass)
    assert (y >= -mass).all()
    assert (y <= slope * mass * (1 + 1e-6)).all()
    at_an_end = far[mass > 0] != 0
    assert at_an_end.mean() > 0.9


def test_a_glob_is_what_settled_rows_have_balanced_already(white, dist):
    metric, token = Metric(white, dist, head(white, dist, 500)), dist.order_N[[40]]
    glob = 0.3 * white.X_VK[dist.order_N[[700]]].T
    search = DouglasRachford(white, dist, metric, token, 0.2, glob)
    for _ in range(5):
        search.iterate()
    missing = AIM * search.goal_Q * search.x_KQ - glob - metric.rows.X_SK.T @ search.a_SQ
    left = missing - metric.hard_HK.T @ (metric.solve_HK @ missing)
    assert np.abs(left).max() < 1e-2 * np.abs(search.aim_KQ).max()


def test_how_far_lambda_travelled_says_where_rows_within_their_box_are(white, dist):
    metric, token = Metric(white, dist, head(white, dist, 500)), dist.order_N[[40]]
    search = DouglasRachford(white, dist, metric, token, 50.0)  # a box that few rows meet an end of
    for _ in range(3):
        search.iterate()
    rows, inside = metric.rows, np.abs(search.v_SQ[:, 0]) < 0.2 * metric.rows.mass_S
    inside &= rows.tokens_S != token  # its own row is no part of its problem
    assert inside.sum() > 20
    said = rows.omega_S * (rows.X_SK @ search.snapshot(0).travel_K)
    np.testing.assert_allclose(said[inside], search.v_SQ[inside, 0], atol=1e-3 * np.abs(said).max())
