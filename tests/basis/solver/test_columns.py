import numpy as np
import pytest

from unspool.basis import BasisTest
from unspool.basis.solver.distribution import Float64Rows, in_fair_units, made_up_by_others, scaled_alike


def fair(W):
    with np.errstate(over="ignore"):
        return in_fair_units(Float64Rows(W), (W * W).mean(axis=0), W.mean(axis=0))


def test_columns_of_the_usual_size_stay_as_they_are():
    W = np.random.default_rng(0).standard_normal((50, 3)) * [1e-30, 1.0, 1e30]
    assert fair(W) is None
    assert BasisTest(W).weight is W


def test_columns_beyond_the_squares_of_float64_are_scaled_by_powers_of_two():
    W = np.random.default_rng(0).standard_normal((50, 3)) * [1e-165, 1.0, 1e250]
    scaled = fair(W).W
    assert np.abs(scaled).max(axis=0) == pytest.approx([0.75, np.abs(W[:, 1]).max(), 0.75], rel=0.34)
    ratio = scaled[0] / W[0]
    assert (W * ratio == scaled).all()
    assert (np.frexp(ratio)[0] == 0.5).all()


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_from_a_steady_column_one_of_its_entries_is_taken_off(sign):
    W = sign * (1e9 + np.array([[3.0], [0.0], [1.0], [0.5]]))
    shifted = fair(W).W
    assert (shifted - shifted.min() == W - W.min()).all()
    assert np.abs(shifted).max() == 3


def test_a_column_that_is_steady_but_for_one_entry_is_not_shifted():
    W = np.full((5000, 1), 1.0) + 1e-9 * np.arange(5000.0)[:, None]
    W[7] = 0.25  # 1 − 0.25 would be exact, but 1.0000000001 − 0.25 need not be
    assert fair(W) is None


def test_a_constant_has_nothing_to_be_shifted():
    assert fair(np.full((6, 1), 3.0)) is None


@pytest.mark.parametrize("a", [1e5, 1e6, 1e8, 1e11, -1e13])
def test_verdicts_do_not_depend_on_where_zero_is(a):
    """W = [[a], [a+1], [a+3]]: the test itself does not know a."""
    p, W = [0.3, 0.5, 0.2], np.array([[0.0], [1.0], [3.0]])
    for i in range(3):
        for tau in (0.1, 0.4, 0.6, 0.9):
            here, there = (BasisTest(W + b).accepts(p, i, tau=tau) for b in (0.0, a))
            assert here.decided
            assert there.decided
            assert here.accepted == there.accepted
            test = BasisTest(W + a)
            assert test.check(there.certificate, p, tau)


@pytest.mark.parametrize("scale", [1e-300, 1e-165, 1e-100, 1e100, 1e165, 1e300])
@pytest.mark.parametrize("rank", [None, 2])
def test_verdicts_do_not_depend_on_units(scale, rank):
    dice = np.random.default_rng(0)
    W, p = dice.standard_normal((30, 4)), dice.dirichlet(np.ones(30))
    plain, scaled = BasisTest(W, rank), BasisTest(scale * W, rank)
    for i in range(8):
        here, there = plain.accepts(p, i, tau=0.2), scaled.accepts(p, i, tau=0.2)
        assert here.decided
        assert there.decided
        assert here.accepted == there.accepted
        assert scaled.check(there.certificate, p, 0.2)


def test_one_power_of_two_for_all_keeps_the_singular_directions():
    W = np.random.default_rng(0).standard_normal((9, 2)) * [1e-170, 1e-172]
    scaled = scaled_alike(Float64Rows(W), 0.0).W
    assert (scaled / W == (scaled / W)[0, 0]).all()
    assert scaled_alike(Float64Rows(np.eye(3)), 1.0) is None
    assert scaled_alike(Float64Rows(np.zeros((3, 2))), 0.0) is None


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_what_is_no_number_is_refused(broken):
    W = np.array([[1.0, 2.0], [broken, 3.0]])
    with pytest.raises(ValueError, match="NaN or infinite"):
        fair(W)
    with pytest.raises(ValueError, match="NaN or infinite"):
        scaled_alike(Float64Rows(W), broken)


def test_as_many_columns_are_left_out_as_there_are_dependences():
    # columns 0 and 2 are alike, column 1 is three times the ones
    null = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -3.0]])
    left_out = made_up_by_others(null)
    assert left_out.tolist() in ([0, 1], [1, 2])


def test_what_is_left_out_is_not_asked():
    W = np.random.default_rng(0).standard_normal((40, 3))
    wide = np.column_stack([W, W[:, 0], np.zeros(40), np.full(40, 7.0), W[:, 1] - W[:, 2]])
    test, few = BasisTest(wide), BasisTest(W)
    assert (test.rank, test.m, test.weight.shape) == (7, 4, (40, 3))
    p = np.random.default_rng(1).dirichlet(np.ones(40))
    assert test.mask(p, 0.2).tolist() == few.mask(p, 0.2).tolist()
