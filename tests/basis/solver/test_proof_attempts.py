import numpy as np
import pytest

from unspool.basis.solver.douglas_rachford import LeastSquares
from unspool.basis.solver.proof_attempts import ProofAttempts, SharedFactors, candidate_tokens
from unspool.basis.theory import Acceptance, Rejection


def test_cases_know_their_goal_and_a_guess(factors):
    work = factors(0)
    tokens = work.dist.order_N[[0, 3, 2000]]
    attempts = ProofAttempts(work, tokens, 0.1)
    assert candidate_tokens(attempts.undecided()).tolist() == tokens.tolist()
    assert [candidate.p_i for candidate in attempts.candidates] == work.dist.p[tokens].tolist()
    guesses = [candidate.kappa_ratio for candidate in attempts.candidates]
    assert guesses[0] > 1 > guesses[2]


def test_what_is_proven_is_closed_with_its_certificate(factors):
    work = factors(0)
    attempts = ProofAttempts(work, work.dist.order_N[[0, 900]], 0.01)
    lam = LeastSquares(work.whitened, work.dist).solve(candidate_tokens(attempts.candidates))
    attempts.try_accept(attempts.undecided(), lam, "least squares")
    first, last = attempts.candidates
    assert first.verdict.accepted
    assert isinstance(first.verdict.certificate, Acceptance)
    assert first.high < first.p_i
    assert attempts.undecided() == [last]
    assert attempts.undecided(lambda candidate: candidate.token == first.token) == []


def test_multipliers_of_the_whole_vocabulary_reject(factors):
    """A token may be balanced by multipliers anywhere: those outside the head stay as they are."""
    work = factors(0)
    token = int(work.dist.order_N[1500])
    attempts = ProofAttempts(work, np.array([token]), 0.5)
    y = np.zeros(len(work.dist.p))
    y[work.dist.order_N[1600:1650]] = 0.2 * work.dist.p[work.dist.order_N[1600:1650]] * work.dist.kappa
    goal = work.dist.p[token] * work.dist.kappa
    (candidate,) = attempts.candidates
    attempts.try_reject_with_all_rows(candidate, y, 1.5 * goal, "interior point")
    assert isinstance(candidate.verdict.certificate, Rejection)
    assert not candidate.verdict
    assert candidate.low > candidate.p_i


def test_no_cases_are_no_work(factors):
    attempts = ProofAttempts(factors(0), np.empty(0, dtype=np.intp), 0.5)
    attempts.try_accept([], np.empty((0, 0)), "nothing")
    assert attempts.candidates == []


def test_settling_keeps_the_bracket(factors):
    work = factors(0)
    attempts = ProofAttempts(work, work.dist.order_N[:1], 0.5)
    candidate = attempts.candidates[0]
    candidate.low, candidate.high, candidate.work = 0.1, 0.2, 99
    attempts.record_verdict(candidate, False, "undecided", None)
    verdict = candidate.verdict
    assert (verdict.low, verdict.high, verdict.work) == (0.1, 0.2, 99)
    assert not candidate.verdict.decided
    assert candidate.verdict.tau == pytest.approx(0.5)


def test_everything_is_made_once(factors):
    work = factors(0)
    assert work.head_metric(512) is work.head_metric(512)
    assert work.sampled_metric(256) is work.sampled_metric(256)
    assert work.repair(512) is work.repair(512)
    assert work.repair(512).metric is work.head_metric(512)
    assert work.full_metric is work.full_metric
    assert work.least_squares is work.least_squares


def test_the_first_level_has_about_two_rows_per_unknown_and_not_too_few(factors, white, model):
    assert factors(0).first_level_rows == 256
    few = model.p(0) * 0
    few[:7] = 1 / 7
    assert SharedFactors(white, few).first_level_rows == 7


def test_larger_levels_grow_from_smaller_ones(factors):
    work = factors(0)
    small = work.head_metric(256)
    assert work._largest_prefix(1024) is small
    assert work._largest_prefix(100) is None
    assert len(work.head_metric(1024).rows.tokens_S) > len(small.rows.tokens_S)
