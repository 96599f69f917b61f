import numpy as np
import pytest

from unspool.basis.distribution import probabilities
from unspool.basis.ladder import Ladder
from unspool.basis.linear_program import reference
from unspool.basis.verification import check
from unspool.basis.whitening import whiten
from unspool.basis.work import accepting, iterating
from unspool.basis.workbench import Workbench


def test_the_papers_example(example):
    bench = Workbench(whiten(example.W), probabilities(example.p, 3))
    verdicts = Ladder(bench, np.arange(3), example.tau).climb()
    assert [verdict.accepted for verdict in verdicts] == [False, True, True]
    assert verdicts[1].how == "threshold"
    assert [verdict.token for verdict in verdicts] == [0, 1, 2]


@pytest.mark.parametrize("tau", [0.003, 0.05, 0.3, 0.9])
def test_every_rung_tells_the_truth(bench, model, tau):
    """A model of 6,000 tokens: tokens around the boundary climb high, and every certificate is checked."""
    work = bench(1)
    tokens = work.dist.order_N[np.r_[0:60:3, 60:600:60]]
    verdicts = Ladder(work, tokens, tau).climb()
    assert all(verdict.decided for verdict in verdicts)
    assert {verdict.accepted for verdict in verdicts} == {True, False}
    for verdict in verdicts:
        assert check(verdict.certificate, model.W, work.dist.p, tau)
        assert verdict.low <= verdict.high * (1 + 1e-9)
        assert verdict.accepted == (verdict.high < work.dist.p[verdict.token])


def test_it_agrees_with_a_general_solver_at_the_boundary(bench, model):
    work, tau = bench(1), 0.1
    verdicts = Ladder(work, work.dist.order_N[:60], tau).climb()
    hows = [verdict.how for verdict in verdicts]
    hard = [verdict for verdict in verdicts if verdict.how in ("interior point", "douglas-rachford")]
    assert hard, hows
    for verdict in hard[:4]:
        assert reference(model.W, work.dist.p, verdict.token, tau).accepted == verdict.accepted


def test_at_rank_zero_it_is_the_threshold(model):
    work = Workbench(whiten(model.W, 0), probabilities(model.p(0), len(model.W)))
    tokens = work.dist.order_N[:40]
    for verdict in Ladder(work, tokens, 0.02).climb():
        assert verdict.accepted == (work.dist.p[verdict.token] > 0.02)
        assert verdict.how == "threshold"
        assert check(verdict.certificate, np.empty((len(model.W), 0)), work.dist.p, 0.02)


def test_at_rank_zero_the_boundary_itself_is_decided_only_by_an_exact_proof():
    """Accepted is what has F < p̂ᵢ: at F = p̂ᵢ a proof of rejection must balance to the last digit."""
    work = Workbench(whiten(np.zeros((2, 1))), probabilities([0.5, 0.5], 2))
    (even,) = Ladder(work, np.array([0]), 0.5).climb()
    assert even.certificate.shift_N.tolist() == [0.5]
    assert not even
    work = Workbench(whiten(np.zeros((10, 1))), probabilities(np.full(10, 0.1), 10))
    (uneven,) = Ladder(work, np.array([0]), 0.1).climb()  # 0.1/9 has no end in binary
    assert uneven.how == "undecided"
    assert not uneven


def test_twins_reject_each_other(model):
    """A token whose row another one shares can be replaced by it."""
    W, p = model.W.copy(), model.p(0)
    first, second = np.argsort(-p)[:2]
    W[second] = W[first]
    work = Workbench(whiten(W), probabilities(p, len(p)))
    it = Ladder(work, np.array([second]), 0.5)
    it._twins()
    (case,) = it.proving.cases
    assert not case.verdict
    assert case.verdict.certificate.rows_N.tolist() == [first]
    assert check(case.verdict.certificate, W, p, 0.5)


def test_work_beyond_the_budget_is_left_undone_and_the_token_undecided(bench):
    tokens = bench(1).dist.order_N[20:60]
    spent = [verdict.work for verdict in Ladder(bench(1), tokens, 0.1).climb()]
    assert min(spent) > 0
    for budget in (1.0, np.median(spent), 2 * max(spent)):
        for verdict in Ladder(bench(1), tokens, 0.1, budget).climb():
            # what has begun is ended: an iteration, and the evaluation of its λ
            assert verdict.work <= budget + iterating(6000, 25) + accepting(6000, 25)
            assert verdict.decided or (not verdict and verdict.how == "undecided" and verdict.high < np.inf)
    assert not all(verdict.decided for verdict in Ladder(bench(1), tokens, 0.1, 1.0).climb())
    assert all(verdict.decided for verdict in Ladder(bench(1), tokens, 0.1, 2 * max(spent)).climb())


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_what_is_decided_within_a_budget_does_not_depend_on_who_else_is_asked_about(bench, share):
    tokens = bench(1).dist.order_N[20:60:3]
    budget = share * max(verdict.work for verdict in Ladder(bench(1), tokens, 0.1).climb())
    shared = bench(1)
    one_by_one = [Ladder(shared, np.array([i]), 0.1, budget).climb()[0] for i in tokens]
    alone = [Ladder(bench(1), np.array([i]), 0.1, budget).climb()[0] for i in tokens]
    assert {verdict.decided for verdict in alone} == {True, False}
    assert [(v.how, v.accepted) for v in one_by_one] == [(v.how, v.accepted) for v in alone]
