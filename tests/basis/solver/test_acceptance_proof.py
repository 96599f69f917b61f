import numpy as np
import pytest

from unspool.basis.solver.acceptance_proof import Evaluator
from unspool.basis.solver.douglas_rachford import LeastSquares
from unspool.basis.solver.lewis_metric import LewisMetric, select_head


def exact_f(model, dist, slopes, token, c):
    s = np.column_stack([model.W.astype(np.longdouble), np.ones(len(model.W))]) @ slopes.astype(np.longdouble)
    s /= s[token]
    f = dist.p.astype(np.longdouble) * np.maximum(c * s, -s)
    return float(f.sum() - f[token])


@pytest.mark.parametrize("c", [0.01, 0.3, 9.0])
def test_the_bound_is_a_bound_and_tight_where_all_was_evaluated(model, white, dist, c):
    evaluator, ls = Evaluator(white, dist), LeastSquares(white, dist)
    tokens = dist.order_N[[0, 3, 20, 100, 900, 4000]]
    beyond = dist.order_N[256:]
    reach = dist.p[beyond] @ white.norm_V[beyond] + dist.tail_V @ white.norm_V
    upper = evaluator.bound(ls.solve(tokens), tokens, c)
    assert upper.proved_Q.any() or c == 9.0
    for q, token in enumerate(tokens):
        f = exact_f(model, dist, upper.dual_MQ[:, q], token, c)
        assert upper.value_Q[q] >= f
        assert upper.proved_Q[q] == (upper.value_Q[q] < dist.p[token])
        if upper.rows_Q[q] == dist.vocabulary:
            length = np.sqrt(np.mean(white.project(upper.dual_MQ[:, [q]]) ** 2))
            float32 = (white.m + 9) * 2.0**-24 * max(1, c) * length * reach
            assert upper.value_Q[q] <= f * (1 + 1e-8) + 2 * float32
            if abs(f - dist.p[token]) < float32:  # evaluated again, in float64
                assert upper.value_Q[q] == pytest.approx(f, rel=1e-8)
        if f >= dist.p[token]:
            assert not upper.proved_Q[q]


@pytest.mark.parametrize("c", [0.001, 0.003, 0.01, 0.03, 0.1])
def test_the_bound_includes_the_rounding_of_float32_sums(model, factors, c):
    work = factors(0, spread=1.0)  # flat, so that the tail counts
    tokens = work.dist.order_N[:60]
    upper = work.evaluator.bound(work.least_squares.solve(tokens), tokens, c)
    summed = np.flatnonzero(upper.rows_Q == work.dist.vocabulary)
    assert len(summed)
    for q in summed:
        assert upper.value_Q[q] >= exact_f(model, work.dist, upper.dual_MQ[:, q], tokens[q], c)


def test_the_certificate_is_normalised(white, dist):
    tokens = dist.order_N[:5]
    lam = LeastSquares(white, dist).solve(tokens) * [1, 1e3, 1e-3, 7, 1e6]
    slopes = Evaluator(white, dist).bound(lam, tokens, 0.1).dual_MQ
    assert np.einsum("qm,mq->q", white.rows(tokens), slopes) == pytest.approx(np.ones(5))


def test_a_metric_puts_its_hard_rows_to_zero(white, dist):
    metric = LewisMetric(white, dist, select_head(white, dist, 400))
    tokens = np.array([dist.order_N[1], dist.order_N[50]])
    lam = LeastSquares(white, dist).solve(tokens)
    slopes = Evaluator(white, dist).bound(lam, tokens, 0.1, metric).dual_MQ
    s = white.project(slopes, dist.order_N[: metric.n_hard])
    expected = np.zeros_like(s)
    expected[1, 0] = 1
    assert np.abs(s - expected).max() < 1e-6


@pytest.mark.parametrize("broken", [0.0, np.nan, np.inf])
def test_a_useless_direction_proves_nothing(white, dist, broken):
    token = dist.order_N[:1]
    lam = np.full((white.X_VK.shape[1], 1), broken)
    assert not Evaluator(white, dist).bound(lam, token, 0.1).proved_Q[0]


@pytest.mark.parametrize("length", [1e-280, 1e280])
def test_the_length_of_a_direction_does_not_matter(white, dist, length):
    tokens = dist.order_N[[0, 3, 40]]
    lam = LeastSquares(white, dist).solve(tokens)
    as_it_is, scaled = (Evaluator(white, dist).bound(x, tokens, 0.05) for x in (lam, length * lam))
    assert scaled.proved_Q.tolist() == as_it_is.proved_Q.tolist()
    assert scaled.dual_MQ == pytest.approx(as_it_is.dual_MQ)


def test_little_is_evaluated_where_little_is_needed(white, dist):
    token = dist.order_N[:1]
    upper = Evaluator(white, dist).bound(LeastSquares(white, dist).solve(token), token, 0.01)
    assert upper.proved_Q[0]
    assert upper.rows_Q[0] < dist.vocabulary


def test_sums_within_float32_rounding_are_evaluated_in_float64(model, white, dist):
    """At the c where f(λ) all but meets p̂ᵢ, on either side."""
    token = dist.order_N[[3]]
    lam = LeastSquares(white, dist).solve(token)
    evaluator = Evaluator(white, dist)
    slopes = evaluator.bound(lam, token, 0.1).dual_MQ[:, 0]
    f0, f1 = (exact_f(model, dist, slopes, token[0], c) for c in (0.0, 1.0))
    meeting = (dist.p[token[0]] - f0) / (f1 - f0)
    assert meeting > 0
    for c, proved in ((meeting * (1 - 1e-7), True), (meeting * (1 + 1e-7), False)):
        upper = evaluator.bound(lam, token, c)
        assert upper.proved_Q[0] == proved
        assert upper.value_Q[0] == pytest.approx(exact_f(model, dist, slopes, token[0], c), rel=1e-8)
