import numpy as np
import pytest
from scipy.optimize import linprog

from unspool.basis.arrays import as_distribution
from unspool.basis.linear_program import solve_linear_program
from unspool.basis.solver.cascade import LevelSearch, close_brackets
from unspool.basis.solver.interior_point import InteriorPoint, solve_reduced
from unspool.basis.solver.proof_attempts import ProofAttempts, SharedFactors
from unspool.basis.solver.whitening import whiten
from unspool.basis.verifier import verify_certificate


def solved(Z, r, w, slope, linear):
    method = InteriorPoint(Z, r, w, slope, linear, np.zeros(Z.shape[1]), np.zeros(len(w)))
    for _ in range(60):
        if not method.iterate() or (method.residual < 1e-10 and method.high - method.low < 1e-9):
            break
    return method


def test_a_median_by_hand():
    # min over μ of Σ|rⱼ − μ|: the median 3, and 2 + 1 + 0 + 4 + 6 = 13
    r = np.array([1.0, 2.0, 3.0, 7.0, 9.0])
    method = solved(np.ones((5, 1)), r, np.ones(5), 1.0, np.zeros(1))
    assert method.mu_K == pytest.approx([3], abs=1e-5)
    assert method.low == pytest.approx(13)
    assert method.high == pytest.approx(13)


def test_a_quantile_by_hand():
    # max(3s, −s): three quarters of the weight lies below the optimum
    method = solved(np.ones((4, 1)), np.array([0.0, 1.0, 2.0, 10.0]), np.ones(4), 3.0, np.zeros(1))
    assert 2 - 1e-4 <= method.mu_K[0] <= 10 + 1e-4
    assert method.high == pytest.approx(2 + 1 + 3 * 8)


@pytest.mark.parametrize("seed", range(6))
def test_it_agrees_with_a_linear_program(seed):
    rng = np.random.default_rng(seed)
    n, k, slope = 60, 5, 10.0 ** rng.uniform(-2, 1)
    Z, r, w = rng.standard_normal((n, k)), rng.standard_normal(n), rng.random(n) ** 4 + 1e-6
    y = w * rng.uniform(-0.5, 0.5 * slope, n)
    method = solved(Z, r, w, slope, y @ Z)  # feasible: y itself
    found = linprog(-r, A_eq=Z.T, b_eq=y @ Z, bounds=np.column_stack([-w, slope * w]))
    assert method.low == pytest.approx(-found.fun, rel=1e-6, abs=1e-9)
    assert method.low <= method.high + 1e-9
    assert (method.y_N >= -w).all()
    assert (method.y_N <= slope * w).all()


def test_many_rows_take_the_other_factorisation():
    rng = np.random.default_rng(0)
    Z, r, w = rng.standard_normal((9000, 4)), rng.standard_normal(9000), rng.random(9000)
    method = solved(Z, r, w, 0.5, np.zeros(4))
    assert method.high - method.low < 1e-6 * method.high
    assert method.residual < 1e-8


def test_dependent_columns_do_no_harm():
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((40, 2))
    both = solved(np.column_stack([Z, Z[:, 0]]), np.sin(np.arange(40)), np.ones(40), 1.0, np.zeros(3))
    one = solved(Z, np.sin(np.arange(40)), np.ones(40), 1.0, np.zeros(2))
    assert both.low == pytest.approx(one.low, rel=1e-6)


def test_the_bound_of_an_infeasible_problem_falls():
    method = InteriorPoint(
        np.ones((3, 1)), np.zeros(3), np.ones(3), 1.0, np.array([10.0]), np.zeros(1), np.zeros(3)
    )
    for _ in range(30):
        if not method.iterate():
            break
    assert method.residual > 1
    assert method.high < 0


def rounds(factors, token, slope, free, hold=True):
    """From nothing: λ = 0 and every multiplier free or at a guess's end."""
    dist, width = factors.dist, factors.whitened.X_VK.shape[1]
    mass = dist.p * dist.kappa
    n_hard = dist.order_N[: factors.full_metric.n_hard if hold else 0]
    start = (np.zeros(width), np.zeros(len(mass)), -mass)  # the heaviest rows are left free
    goal = dist.p[token] * dist.kappa
    return goal, list(solve_reduced(factors.whitened, n_hard, mass, token, slope, *start, goal, free))


@pytest.mark.parametrize("hold", [True, False])
def test_with_all_rows_free_the_optimum_is_found_at_once(example, hold):
    factors = SharedFactors(whiten(example.W), as_distribution(example.p, 3))
    for token in range(3):
        goal, found = rounds(factors, token, 0.9, 2, hold)
        _, _, t = found[0]
        theta = solve_linear_program(example.W, example.p, token, example.tau).theta
        assert t / goal == pytest.approx(theta, rel=1e-3, abs=1e-3) or t > goal


def test_both_sides_are_what_they_say(factors):
    work = factors(3)
    token, slope = int(work.dist.order_N[40]), 0.2
    white, mass = work.whitened, work.dist.p * work.dist.kappa
    _, found = rounds(work, token, slope, 3000)
    assert found
    for lam, y, t in found:
        assert (y >= -mass).all()
        assert (y <= slope * mass * (1 + 1e-12)).all()
        s = white.project((white.basis_MK @ lam)[:, None])[:, 0]
        assert s[token] == pytest.approx(1)
        s[token] = 0
        upper = mass @ np.maximum(slope * s, -s)
        assert t <= upper * (1 + 1e-6)


def test_a_token_in_the_span_of_the_hard_ones_is_left_to_others(model):
    W = model.W.copy()
    p = model.p(0)
    first = int(np.argmax(p))
    other = (first + 1) % len(p)
    W[other] = W[first]
    factors = SharedFactors(whiten(W), as_distribution(p, len(p)))
    assert factors.full_metric.n_hard > 0
    assert rounds(factors, other, 0.2, 2000)[1] == []


def test_it_decides_what_a_few_iterations_leave_open(factors, model):
    work, tau = factors(4), 0.03
    attempts = ProofAttempts(work, work.dist.order_N[5:80:5], tau)
    level = LevelSearch(attempts, attempts.factors.full_metric, attempts.undecided())
    level.run(4)
    before = len(attempts.undecided())
    assert before
    close_brackets(level, 4000, hold_hard=True)
    close_brackets(level, 6000, hold_hard=False)
    assert len(attempts.undecided()) < before
    assert [candidate.token for candidate in level.candidates] == [
        candidate.token for candidate in attempts.undecided()
    ]
    hows = {candidate.verdict.method for candidate in attempts.candidates if candidate.verdict is not None}
    assert "interior point" in hows
    for candidate in attempts.candidates:
        assert candidate.verdict is None or verify_certificate(
            candidate.verdict.certificate, model.W, work.dist.p, tau
        )


def test_a_bracket_encloses_the_same_number_from_both_sides(factors, model):
    work = factors(4)
    attempts = ProofAttempts(work, work.dist.order_N[5:80:5], 0.01)
    level = LevelSearch(attempts, attempts.factors.full_metric, attempts.undecided())
    level.run(4)
    left = attempts.undecided()
    assert left
    close_brackets(level, 6000, hold_hard=True)
    bounded = [candidate for candidate in left if candidate.low > 0 or np.isfinite(candidate.high)]
    assert {candidate.verdict.accepted for candidate in bounded} == {True, False}
    for candidate in bounded:
        theta = solve_linear_program(model.W, work.dist.p, candidate.token, 0.01).theta
        assert candidate.low <= theta * candidate.p_i * (1 + 1e-6)
        assert candidate.high >= theta * candidate.p_i * (1 - 1e-6)


def test_both_sides_of_a_boundary_known_by_hand():
    # F = 0.9·c reaches p̂ = 0.1 at τ = 0.1.
    W, p = np.array([[0.0], [1.0], [-1.0]]), np.array([0.1, 0.45, 0.45])
    for tau, accepted in ((0.0995, True), (0.1005, False)):
        attempts = ProofAttempts(SharedFactors(whiten(W), p), np.array([0]), tau)
        level = LevelSearch(attempts, attempts.factors.full_metric, attempts.undecided())
        level.run(1)
        close_brackets(level, 3, hold_hard=False)
        assert attempts.candidates[0].verdict.accepted is accepted
