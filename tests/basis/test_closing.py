import numpy as np
import pytest

from unspool.basis.check import check
from unspool.basis.closing import close
from unspool.basis.proving import Proving
from unspool.basis.reference import reference
from unspool.basis.searching import over_all
from unspool.basis.whitening import whiten
from unspool.basis.workbench import Workbench


def closed(W, p, tokens, tau, iterations):
    proving = Proving(Workbench(whiten(W), p), np.array(tokens), tau)
    searching = over_all(proving, proving.cases, {})
    left = list(searching.run(iterations))
    close(searching, len(p), hold=False)
    return proving, left, searching


@pytest.mark.parametrize("tau", [0.03, 0.05])
def test_what_a_short_search_leaves_open_is_closed(tau):
    dice = np.random.default_rng(0)
    W, p = dice.normal(size=(90, 4)), dice.dirichlet(np.full(90, 2.0))
    proving, left, searching = closed(W, p, np.flatnonzero(p < tau), tau, 1)  # as after the threshold
    assert left
    assert searching.cases == proving.open() == []
    for case in left:
        assert case.verdict.how == "interior point"
        assert case.verdict.accepted == reference(W, p, case.token, tau).accepted
        assert check(case.verdict.certificate, W, p, tau)


def test_both_sides_of_a_boundary_known_by_hand():
    # F = 0.9·c reaches p̂ = 0.1 at τ = 0.1.
    W, p = np.array([[0.0], [1.0], [-1.0]]), np.array([0.1, 0.45, 0.45])
    for tau, accepted in ((0.0995, True), (0.1005, False)):
        proving, _, _ = closed(W, p, [0], tau, 1)
        assert proving.cases[0].verdict.accepted is accepted
