import numpy as np

from unspool.basis.closing import close
from unspool.basis.linear_program import reference
from unspool.basis.proving import Proving
from unspool.basis.searching import over_all
from unspool.basis.verification import check
from unspool.basis.whitening import whiten
from unspool.basis.workbench import Workbench


def test_it_decides_what_a_few_iterations_leave_open(bench, model):
    work, tau = bench(4), 0.03
    proving = Proving(work, work.dist.order_N[5:80:5], tau)
    searching = over_all(proving, proving.open(), {})
    searching.run(4)
    before = len(proving.open())
    assert before
    close(searching, 4000, hold=True)
    close(searching, 6000, hold=False)
    assert len(proving.open()) < before
    assert [case.token for case in searching.cases] == [case.token for case in proving.open()]
    hows = {case.verdict.how for case in proving.cases if case.verdict is not None}
    assert "interior point" in hows
    for case in proving.cases:
        assert case.verdict is None or check(case.verdict.certificate, model.W, work.dist.p, tau)


def test_a_bracket_encloses_the_same_number_from_both_sides(bench, model):
    work = bench(4)
    proving = Proving(work, work.dist.order_N[5:80:5], 0.01)
    searching = over_all(proving, proving.open(), {})
    searching.run(4)
    left = proving.open()
    assert left
    close(searching, 6000, hold=True)
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
        proving = Proving(Workbench(whiten(W), p), np.array([0]), tau)
        searching = over_all(proving, proving.open(), {})
        searching.run(1)
        close(searching, 3, hold=False)
        assert proving.cases[0].verdict.accepted is accepted
