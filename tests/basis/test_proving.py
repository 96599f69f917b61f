import numpy as np
import pytest

from unspool.basis.certificate import Acceptance, Rejection
from unspool.basis.check import check
from unspool.basis.proving import Proving, tokens_of
from unspool.basis.whitening import whiten
from unspool.basis.workbench import Workbench

W = np.array([[0.0], [1.0], [-1.0]])
P = np.array([0.1, 0.45, 0.45])


@pytest.fixture
def proving():
    return Proving(Workbench(whiten(W), P), np.array([0, 1]), 0.4)


def test_a_constant_slope_is_written_down_where_it_proves(proving):
    constant = np.linalg.solve(proving.bench.white.basis_MK, [0.0, 1.0])
    proving.accept(proving.cases, np.column_stack([constant, constant]), "by hand")
    middle, end = proving.cases
    assert middle.verdict is None
    assert middle.high == pytest.approx(0.9 * 2 / 3, rel=1e-6)
    assert end.verdict.accepted
    assert end.verdict.how == "by hand"
    assert check(end.verdict.certificate, W, P, 0.4)
    assert isinstance(end.verdict.certificate, Acceptance)
    assert tokens_of(proving.open()).tolist() == [0]
    assert proving.open(lambda case: case.goal > 0.4) == []


def test_multipliers_of_the_whole_vocabulary_are_written_down_where_they_prove(proving):
    kappa, (middle, end) = proving.bench.dist.kappa, proving.cases
    proving.reject_whole(middle, kappa * np.array([0.0, 0.051, 0.051]), kappa * 0.102, "by hand")
    assert isinstance(middle.verdict.certificate, Rejection)
    assert check(middle.verdict.certificate, W, P, 0.4)
    proving.reject_whole(end, kappa * np.array([0.9, 0.0, -0.45]), kappa * 0.45, "by hand")
    assert end.verdict is None
    assert end.low < P[1]


def test_what_is_left_open_has_no_proof(proving):
    proving.settle(proving.cases[0], False, "undecided", None)
    assert not proving.cases[0].verdict.decided
    assert tokens_of(proving.open()).tolist() == [1]
