import numpy as np
import pytest

from unspool.basis.certificate import Acceptance, Rejection
from unspool.basis.solver.douglas_rachford import LeastSquares
from unspool.basis.solver.proof_attempts import ProofAttempts, tokens_of


def test_cases_know_their_goal_and_a_guess(factors):
    work = factors(0)
    tokens = work.dist.order_N[[0, 3, 2000]]
    attempts = ProofAttempts(work, tokens, 0.1)
    assert tokens_of(attempts.open()).tolist() == tokens.tolist()
    assert [case.goal for case in attempts.cases] == work.dist.p[tokens].tolist()
    guesses = [case.guess for case in attempts.cases]
    assert guesses[0] > 1 > guesses[2]


def test_what_is_proven_is_closed_with_its_certificate(factors):
    work = factors(0)
    attempts = ProofAttempts(work, work.dist.order_N[[0, 900]], 0.01)
    lam = LeastSquares(work.white, work.dist).slopes(tokens_of(attempts.cases))
    attempts.accept(attempts.open(), lam, "least squares")
    first, last = attempts.cases
    assert first.verdict.accepted
    assert isinstance(first.verdict.certificate, Acceptance)
    assert first.high < first.goal
    assert attempts.open() == [last]
    assert attempts.open(lambda case: case.token == first.token) == []


def test_multipliers_of_the_whole_vocabulary_reject(factors):
    """A token may be balanced by multipliers anywhere: those outside the head stay as they are."""
    work = factors(0)
    token = int(work.dist.order_N[1500])
    attempts = ProofAttempts(work, np.array([token]), 0.5)
    y = np.zeros(len(work.dist.p))
    y[work.dist.order_N[1600:1650]] = 0.2 * work.dist.p[work.dist.order_N[1600:1650]] * work.dist.kappa
    goal = work.dist.p[token] * work.dist.kappa
    (case,) = attempts.cases
    attempts.reject_whole(case, y, 1.5 * goal, "interior point")
    assert isinstance(case.verdict.certificate, Rejection)
    assert not case.verdict
    assert case.low > case.goal
    assert case.verdict.seconds > 0


def test_no_cases_are_no_work(factors):
    attempts = ProofAttempts(factors(0), np.empty(0, dtype=np.intp), 0.5)
    attempts.accept([], np.empty((0, 0)), "nothing")
    attempts.reject([], None, np.empty((0, 0)), np.empty(0), "nothing")
    assert attempts.cases == []


def test_settling_keeps_the_bracket(factors):
    work = factors(0)
    attempts = ProofAttempts(work, work.dist.order_N[:1], 0.5)
    case = attempts.cases[0]
    case.low, case.high, case.iterations, case.rows = 0.1, 0.2, 7, 99
    attempts.settle(case, False, "undecided", None)
    assert (case.verdict.low, case.verdict.high, case.verdict.iterations, case.verdict.rows) == (
        0.1,
        0.2,
        7,
        99,
    )
    assert not case.verdict.decided
    assert case.verdict.tau == pytest.approx(0.5)
