import numpy as np
import pytest

from unspool.basis.check import check
from unspool.basis.proving import Proving
from unspool.basis.reference import reference
from unspool.basis.searching import over_all, over_head, over_sample
from unspool.basis.whitening import whiten
from unspool.basis.workbench import Workbench

SEARCHES = {
    "head": lambda proving: over_head(proving, 90, proving.cases),
    "sample": lambda proving: over_sample(proving, 90, proving.cases),
    "all": lambda proving: over_all(proving, proving.cases, {}),
}


def room(tau):
    dice = np.random.default_rng(0)
    W, p = dice.normal(size=(90, 4)), dice.dirichlet(np.full(90, 2.0))
    return W, p, Proving(Workbench(whiten(W), p), np.argsort(-p)[::6], tau)


def test_three_tokens_by_hand():
    W, p = np.array([[0.0], [1.0], [-1.0]]), np.array([0.2, 0.4, 0.4])
    proving = Proving(Workbench(whiten(W), p), np.array([0, 1]), 0.3)
    assert over_head(proving, 3, proving.cases).run(50) == []
    assert [case.verdict.accepted for case in proving.cases] == [False, True]


@pytest.mark.parametrize("rows", SEARCHES)
@pytest.mark.parametrize("tau", [0.05, 0.3])
def test_what_a_search_decides_is_so_and_leaves_it(rows, tau):
    W, p, proving = room(tau)
    left = SEARCHES[rows](proving).run(60)
    decided = [case for case in proving.cases if case.verdict is not None]
    assert len(decided) + len(left) == len(proving.cases)
    assert decided
    for case in decided:
        assert case.verdict.accepted == reference(W, p, case.token, tau).accepted
        assert check(case.verdict.certificate, W, p, tau)


def test_a_head_alone_accepts_nothing():
    _, _, proving = room(0.05)
    over_head(proving, 30, proving.cases).run(60)
    assert not any(case.verdict for case in proving.cases)


def test_open_cases_are_remembered_for_a_search_over_all_rows():
    W, p, proving = room(0.05)
    first = over_sample(proving, 30, proving.cases)
    left = first.run(1)
    assert left
    assert {case.token for case in left} <= set(first.snapshots)
    over_all(proving, proving.open(), first.snapshots).run(100)
    decided = [case for case in proving.cases if case.verdict is not None]
    assert decided
    for case in decided:
        assert case.verdict.accepted == reference(W, p, case.token, 0.05).accepted
