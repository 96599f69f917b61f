import numpy as np
import pytest

from unspool.basis import BasisTest
from unspool.basis.basis_test import critical_tau, tau_of


def test_the_papers_example(example):
    # token 0 is rejected from c = p̂₀·(16/42)/p̂₂ on: what its neighbour at .29 has to gain
    test = BasisTest(example.W)
    low, high = test.critical_tau(example.p, 0)
    c = example.p[0] * 16 / 42 / example.p[2]
    assert low <= c / (1 + c) <= high * (1 + 1e-9)
    assert high <= low * 1.001
    # token 1 outweighs all: the one at .29 cannot lose p̂₁·(16/26), so it is accepted whatever the error
    assert test.critical_tau(example.p, 1)[1] == 1
    # for token 2 that at .55 has to gain p̂₂·(42/16)
    c = example.p[2] * 42 / 16 / example.p[0]
    assert test.critical_tau(example.p, 2) == pytest.approx((c / (1 + c), c / (1 + c)), rel=1e-3)


@pytest.mark.parametrize("rank", [12, 20, 40])
def test_both_ends_are_proven(model, rank):
    test, p = BasisTest(model.W), model.p(2)
    step = test.step(p)
    i = int(step.distribution.order_N[rank])
    low, high = critical_tau(step, i, 1e-2)
    assert p[i] <= low < high <= low * 1.01
    assert step.accepts(i, tau=low * 0.999).accepted
    rejected = step.accepts(i, tau=min(high * 1.001, 0.9999))
    assert rejected.decided
    assert not rejected


def test_at_rank_zero_it_is_the_probability(model):
    test, p = BasisTest(model.W, 0), model.p(0)
    i = int(np.argmax(p))
    low, high = test.critical_tau(p, i)
    assert low == pytest.approx(p[i])
    assert high == pytest.approx(p[i], rel=1e-3)


def test_rtol_is_checked(model):
    with pytest.raises(ValueError, match="rtol"):
        critical_tau(BasisTest(model.W).step(model.p(0)), 0, 0.0)


def test_tau_of_a_slope():
    assert tau_of(1.0) == 0.5
    assert tau_of(float("inf")) == 1.0
