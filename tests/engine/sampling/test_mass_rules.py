import math

import numba
import numpy as np
import pytest

from unspool.engine import truncation

P = np.array([0.05, 0.5, 0.15, 0.3])


@numba.njit
def top_p(score, size, peak, base, whole, p, scratch):
    return truncation.top_p(score, size, peak, base, whole, p, scratch)


@numba.njit
def typical(score, size, centre, mass, whole, floor, scratch):
    return truncation.typical(score, size, 0.0, centre, mass, whole, floor, scratch)


@numba.njit
def ordered(score, size, edge, centre, off, scratch):
    return truncation.has_clear_order(score, size, edge, centre, off, scratch)


@pytest.mark.parametrize(("p", "last"), [(0.1, 1), (0.49, 1), (0.51, 3), (0.79, 3), (0.9, 2), (0.96, 0)])
def test_nucleus_by_hand(listed, p, last):
    scratch = listed(np.log(P).astype(np.float32))
    edge, surplus, sure = top_p(scratch.score, 4, math.log(0.5), 0.0, 1.0, p, scratch)
    assert (edge, surplus, sure) == (scratch.score[last], 0, True)


@pytest.mark.parametrize(("p", "surplus"), [(0.65, 3), (0.75, 2), (0.85, 1), (0.95, 0)])
def test_the_nucleus_keeps_as_many_ties_as_needed(listed, p, surplus):
    scratch = listed(np.log([0.1, 0.2, 0.1, 0.4, 0.1, 0.1]).astype(np.float32))
    edge, found, sure = top_p(scratch.score, 6, math.log(0.4), 0.0, 1.0, p, scratch)
    assert (edge, found, sure) == (scratch.score[0], surplus, True)


def share_of_best(scratch):
    weights = np.exp(scratch.score[:4].astype(np.float64))
    return weights[1] / weights.sum()


def test_a_mass_on_the_border_of_a_token_is_not_certain(listed):
    scratch = listed(np.log(P).astype(np.float32))
    border = share_of_best(scratch)
    for p, sure in [(border, False), (border + 1e-14, False), (0.5001, True)]:
        assert top_p(scratch.score, 4, math.log(0.5), 0.0, 1.0, p, scratch)[2] == sure


def test_a_mass_that_float32_cannot_decide_is_decided_in_float64(listed):
    scratch = listed(np.log(P).astype(np.float32))
    border = share_of_best(scratch)
    # Only the token at the edge can be confirmed: in float32 it may be the next one.
    found = [
        top_p(scratch.score, 4, math.log(0.5), 0.0, 1.0, p, scratch) for p in (border - 1e-9, border + 1e-9)
    ]
    assert any(sure for *_, sure in found)
    for (edge, surplus, sure), last in zip(found, (1, 3), strict=True):
        assert not sure or (edge, surplus) == (scratch.score[last], 0)
    # Typical: the token of 0.3 is nearest to H, and then that of 0.5.
    border = float(np.exp(np.float64(scratch.score[3])) / np.exp(scratch.score[:4].astype(np.float64)).sum())
    found = [
        typical(scratch.score, 4, -1.1421, tau, 1.0, -20.0, scratch) for tau in (border - 1e-9, border + 1e-9)
    ]
    assert any(sure for *_, sure in found)
    for (edge, sure), last in zip(found, (3, 1), strict=True):
        assert not sure or edge == scratch.key[last]


@pytest.mark.parametrize(
    ("tau", "last"),
    # H = 1.1421; |−log p − H| = 1.85, 0.449, 0.755, 0.062
    [(0.2, 3), (0.29, 3), (0.31, 1), (0.79, 1), (0.9, 2), (0.96, 0)],
)
def test_typical_set_by_hand(listed, tau, last):
    scratch = listed(np.log(P).astype(np.float32))
    edge, sure = typical(scratch.score, 4, -1.1421, tau, 1.0, -20.0, scratch)
    assert (edge, sure) == (scratch.key[last], True)
    assert edge == pytest.approx(-abs(-math.log(P[last]) - 1.1421), abs=1e-5)
    assert ordered(scratch.score, 4, edge, -1.1421, 1e-6, scratch)


def test_tokens_equally_far_on_both_sides_of_the_centre_are_not_certain(listed):
    scratch = listed(np.float32([-1, -3, -5]))
    edge, _ = typical(scratch.score, 3, -2.0, 0.3, float(np.exp(scratch.score[:3]).sum()), -20.0, scratch)
    assert edge == -1
    assert not ordered(scratch.score, 3, edge, -2.0, 1e-6, scratch)
    scratch = listed(np.float32([-1, -3.001, -5]))
    edge, _ = typical(scratch.score, 3, -2.0, 0.3, float(np.exp(scratch.score[:3]).sum()), -20.0, scratch)
    assert ordered(scratch.score, 3, edge, -2.0, 1e-6, scratch)
    assert not ordered(scratch.score, 3, edge, -2.0, 1e-3, scratch)


def test_tokens_on_the_same_side_are_certain(listed):
    near = np.float32(-3)
    scratch = listed(np.array([near, np.nextafter(near, np.float32(0)), -9], np.float32))
    edge, _ = typical(scratch.score, 3, -2.0, 0.3, float(np.exp(scratch.score[:3]).sum()), -20.0, scratch)
    assert ordered(scratch.score, 3, edge, -2.0, 1e-3, scratch)


def test_negligible_score_and_share_bound():
    floor = numba.njit(lambda: truncation.negligible_score(0.0, 4.0, 0.9, 10))()
    assert math.exp(floor) == pytest.approx(4 * 0.1 / 20)
    assert numba.njit(lambda: truncation.share_bound(0.5))() == pytest.approx(
        1.2e-7 / 2 + truncation.FLOAT64_BOUND
    )
