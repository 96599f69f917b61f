import numpy as np
import pytest

from unspool.basis.arrays import as_distribution
from unspool.basis.linear_program import solve_linear_program
from unspool.basis.solver.cascade import Cascade
from unspool.basis.solver.proof_attempts import SharedFactors
from unspool.basis.solver.whitening import whiten
from unspool.basis.verifier import verify_certificate
from unspool.basis.work import acceptance_cost, iteration_cost


def test_the_papers_example(example):
    factors = SharedFactors(whiten(example.W), as_distribution(example.p, 3))
    verdicts = Cascade(factors, np.arange(3), example.tau).verdicts()
    assert [verdict.accepted for verdict in verdicts] == [False, True, True]
    assert verdicts[1].method == "threshold"
    assert [verdict.token for verdict in verdicts] == [0, 1, 2]


@pytest.mark.parametrize("tau", [0.003, 0.05, 0.3, 0.9])
def test_every_stage_tells_the_truth(factors, model, tau):
    """A model of 6,000 tokens: tokens around the boundary get far, and every certificate is checked."""
    work = factors(1)
    tokens = work.dist.order_N[np.r_[0:60:3, 60:600:60]]
    verdicts = Cascade(work, tokens, tau).verdicts()
    assert all(verdict.decided for verdict in verdicts)
    assert {verdict.accepted for verdict in verdicts} == {True, False}
    for verdict in verdicts:
        assert verify_certificate(verdict.certificate, model.W, work.dist.p, tau)
        assert verdict.low <= verdict.high * (1 + 1e-9)
        assert verdict.accepted == (verdict.high < work.dist.p[verdict.token])


def test_it_agrees_with_a_general_solver_at_the_boundary(factors, model):
    work, tau = factors(1), 0.1
    verdicts = Cascade(work, work.dist.order_N[:60], tau).verdicts()
    hows = [verdict.method for verdict in verdicts]
    n_hard = [verdict for verdict in verdicts if verdict.method in ("interior point", "douglas-rachford")]
    assert n_hard, hows
    for verdict in n_hard[:4]:
        assert solve_linear_program(model.W, work.dist.p, verdict.token, tau).accepted == verdict.accepted


def test_at_rank_zero_it_is_the_threshold(model):
    work = SharedFactors(whiten(model.W, 0), as_distribution(model.p(0), len(model.W)))
    tokens = work.dist.order_N[:40]
    for verdict in Cascade(work, tokens, 0.02).verdicts():
        assert verdict.accepted == (work.dist.p[verdict.token] > 0.02)
        assert verdict.method == "threshold"
        assert verify_certificate(verdict.certificate, np.empty((len(model.W), 0)), work.dist.p, 0.02)


def test_at_rank_zero_the_boundary_itself_is_decided_only_by_an_exact_proof():
    """Accepted is what has F < p̂ᵢ: at F = p̂ᵢ a proof of rejection must balance to the last digit."""
    work = SharedFactors(whiten(np.zeros((2, 1))), as_distribution([0.5, 0.5], 2))
    (even,) = Cascade(work, np.array([0]), 0.5).verdicts()
    assert even.certificate.shift_N.tolist() == [0.5]
    assert not even
    work = SharedFactors(whiten(np.zeros((10, 1))), as_distribution(np.full(10, 0.1), 10))
    (uneven,) = Cascade(work, np.array([0]), 0.1).verdicts()  # 0.1/9 has no end in binary
    assert uneven.method == "undecided"
    assert not uneven


def test_twins_reject_each_other(model):
    """A token whose row another one shares can be replaced by it."""
    W, p = model.W.copy(), model.p(0)
    first, second = np.argsort(-p)[:2]
    W[second] = W[first]
    work = SharedFactors(whiten(W), as_distribution(p, len(p)))
    it = Cascade(work, np.array([second]), 0.5)
    it._reject_by_duplicates()
    (candidate,) = it.attempts.candidates
    assert not candidate.verdict
    assert candidate.verdict.certificate.rows_N.tolist() == [first]
    assert verify_certificate(candidate.verdict.certificate, W, p, 0.5)


def test_work_beyond_the_budget_is_left_undone_and_the_token_undecided(factors):
    tokens = factors(1).dist.order_N[20:60]
    spent = [verdict.work for verdict in Cascade(factors(1), tokens, 0.1).verdicts()]
    assert min(spent) > 0
    for budget in (1.0, np.median(spent), 2 * max(spent)):
        for verdict in Cascade(factors(1), tokens, 0.1, budget).verdicts():
            # what has begun is ended: an iteration, and the evaluation of its λ
            assert verdict.work <= budget + iteration_cost(6000, 25) + acceptance_cost(6000, 25)
            assert verdict.decided or (
                not verdict and verdict.method == "undecided" and verdict.high < np.inf
            )
    assert not all(verdict.decided for verdict in Cascade(factors(1), tokens, 0.1, 1.0).verdicts())
    assert all(verdict.decided for verdict in Cascade(factors(1), tokens, 0.1, 2 * max(spent)).verdicts())


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_verdicts_within_a_budget_do_not_depend_on_the_other_tokens(factors, share):
    tokens = factors(1).dist.order_N[20:60:3]
    budget = share * max(verdict.work for verdict in Cascade(factors(1), tokens, 0.1).verdicts())
    shared = factors(1)
    one_by_one = [Cascade(shared, np.array([i]), 0.1, budget).verdicts()[0] for i in tokens]
    alone = [Cascade(factors(1), np.array([i]), 0.1, budget).verdicts()[0] for i in tokens]
    assert {verdict.decided for verdict in alone} == {True, False}
    assert [(v.method, v.accepted) for v in one_by_one] == [(v.method, v.accepted) for v in alone]
