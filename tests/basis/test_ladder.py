import numpy as np
import pytest

from unspool.basis.check import check
from unspool.basis.ladder import Ladder
from unspool.basis.reference import reference
from unspool.basis.whitening import whiten
from unspool.basis.workbench import Workbench


def climb(W, p, tau, rank=None):
    white = whiten(W, rank)
    return Ladder(Workbench(white, np.asarray(p)), np.arange(len(p)), tau).climb()


def test_three_tokens_by_hand():
    # c = 0.25: the middle has F = 0.2 and p̂ = 0.1, the ends F = min(0.45, 0.25·0.1/2).
    W, p = np.array([[0.0], [1.0], [-1.0]]), np.array([0.1, 0.45, 0.45])
    verdicts = climb(W, p, 0.2)
    assert [v.accepted for v in verdicts] == [False, True, True]
    assert verdicts[1].how == "threshold"
    assert [v.token for v in verdicts] == [0, 1, 2]


def test_without_a_basis_only_the_threshold_decides():
    verdicts = climb(np.ones((3, 2)), [0.5, 0.3, 0.2], 0.4, rank=0)
    assert [v.accepted for v in verdicts] == [True, False, False]
    assert {v.how for v in verdicts} == {"threshold"}


def test_a_twin_balances_its_token():
    W = np.random.default_rng(0).normal(size=(6, 12))  # more columns than rows: nothing else is dependent
    W[1] = W[0]
    verdicts = climb(W, [0.1, 0.5, 0.1, 0.1, 0.1, 0.1], 0.3)
    assert [v.accepted for v in verdicts] == [False, True, True, True, True, True]


@pytest.mark.parametrize("tau", [0.02, 0.2, 0.6])
def test_every_rung_gives_verdicts_whose_proofs_hold(tau):
    dice = np.random.default_rng(1)
    W, p = dice.normal(size=(60, 5)), dice.dirichlet(np.full(60, 2.0))
    for verdict in climb(W, p, tau):
        theta = reference(W, p, verdict.token, tau)
        assert verdict.decided or theta.near
        assert verdict.accepted == theta.accepted
        assert check(verdict.certificate, W, p, tau)
        assert verdict.low <= theta.theta * p[verdict.token] * (1 + 1e-5)
        assert verdict.high >= theta.theta * p[verdict.token] * (1 - 1e-5)
