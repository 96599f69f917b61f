import numpy as np
import pytest

from unspool.basis.arrays import probabilities
from unspool.basis.linear_program import reference
from unspool.basis.solver.interior_point import solve_reduced
from unspool.basis.solver.proof_attempts import SharedFactors
from unspool.basis.solver.whitening import whiten


def rounds(factors, token, slope, free, hold=True):
    """From nothing: λ = 0 and every multiplier free or at a guess's end."""
    dist, width = factors.dist, factors.white.X_VK.shape[1]
    mass = dist.p * dist.kappa
    hard = dist.order_N[: factors.whole.hard if hold else 0]
    start = (np.zeros(width), np.zeros(len(mass)), -mass)  # the heaviest rows are left free
    goal = dist.p[token] * dist.kappa
    return goal, list(solve_reduced(factors.white, hard, mass, token, slope, *start, goal, free))


@pytest.mark.parametrize("hold", [True, False])
def test_with_all_rows_free_the_optimum_is_found_at_once(example, hold):
    factors = SharedFactors(whiten(example.W), probabilities(example.p, 3))
    for token in range(3):
        goal, found = rounds(factors, token, 0.9, 2, hold)
        _, _, t = found[0]
        theta = reference(example.W, example.p, token, example.tau).theta
        assert t / goal == pytest.approx(theta, rel=1e-3, abs=1e-3) or t > goal


def test_both_sides_are_what_they_say(factors):
    work = factors(3)
    token, slope = int(work.dist.order_N[40]), 0.2
    white, mass = work.white, work.dist.p * work.dist.kappa
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
    factors = SharedFactors(whiten(W), probabilities(p, len(p)))
    assert factors.whole.hard > 0
    assert rounds(factors, other, 0.2, 2000)[1] == []
