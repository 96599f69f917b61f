import numpy as np

from unspool.basis.linear_program import reference
from unspool.basis.solver.cascade import close_brackets
from unspool.basis.solver.level_search import over_all
from unspool.basis.solver.proof_attempts import ProofAttempts, SharedFactors
from unspool.basis.solver.whitening import whiten
from unspool.basis.verifier import check


def test_it_decides_what_a_few_iterations_leave_open(factors, model):
    work, tau = factors(4), 0.03
    attempts = ProofAttempts(work, work.dist.order_N[5:80:5], tau)
    level = over_all(attempts, attempts.open(), {})
    level.run(4)
    before = len(attempts.open())
    assert before
    close_brackets(level, 4000, hold=True)
    close_brackets(level, 6000, hold=False)
    assert len(attempts.open()) < before
    assert [case.token for case in level.cases] == [case.token for case in attempts.open()]
    hows = {case.verdict.how for case in attempts.cases if case.verdict is not None}
    assert "interior point" in hows
    for case in attempts.cases:
        assert case.verdict is None or check(case.verdict.certificate, model.W, work.dist.p, tau)


def test_a_bracket_encloses_the_same_number_from_both_sides(factors, model):
    work = factors(4)
    attempts = ProofAttempts(work, work.dist.order_N[5:80:5], 0.01)
    level = over_all(attempts, attempts.open(), {})
    level.run(4)
    left = attempts.open()
    assert left
    close_brackets(level, 6000, hold=True)
    bounded = [case for case in left if case.low > 0 or np.isfinite(case.high)]
    assert {case.verdict.accepted for case in bounded} == {True, False}
    for case in bounded:
        theta = reference(model.W, work.dist.p, case.token, 0.01).theta
        assert case.low <= theta * case.goal * (1 + 1e-6)
        assert case.high >= theta * case.goal * (1 - 1e-6)


def test_both_sides_of_a_boundary_known_by_hand():
    # F = 0.9·c reaches p̂ = 0.1 at τ = 0.1.
    W, p = np.array([[0.0], [1.0], [-1.0]]), np.array([0.1, 0.45, 0.45])
    for tau, accepted in ((0.0995, True), (0.1005, False)):
        attempts = ProofAttempts(SharedFactors(whiten(W), p), np.array([0]), tau)
        level = over_all(attempts, attempts.open(), {})
        level.run(1)
        close_brackets(level, 3, hold=False)
        assert attempts.cases[0].verdict.accepted is accepted
