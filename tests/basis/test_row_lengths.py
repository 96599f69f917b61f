import numpy as np
import pytest
import torch

from unspool.basis import BasisTest
from unspool.basis.kappa_rule import RowLengths, compute_row_lengths, kappa


def test_by_hand():
    # m = 1, x = 1, 1, 2 and q = 0, 0, 1: G = ½ + ½·4 = 2.5
    X = np.array([[1.0], [1.0], [2.0]], dtype=np.float32)
    found = compute_row_lengths(X, np.array([0.0, 0.0, 7.0]))
    assert found.values_V == pytest.approx(np.array([1, 1, 2]) / 2.5**0.5)


def test_of_a_matrix_by_hand():
    # W = (−1, 0, 1)ᵀ: x = (√1.5·w, 1). m = 2: p = (½, ½, 0) saturates both, q = p;
    # G = ½I + ½·(½·xxᵀ of tokens 0 and 1) = [[0.875, −√1.5/4], [−√1.5/4, 1]], G⁻¹ = [[1, √1.5/4], [√1.5/4, .875]]/.78125
    found = BasisTest(np.array([[-1.0], [0.0], [1.0]])).row_lengths([[0.5, 0.5, 0.0]])
    squares = np.array([1.5 + 0.875 - 0.75, 0.875, 1.5 + 0.875 + 0.75]) / 0.78125 / 2
    assert found.values_V == pytest.approx(squares**0.5, rel=1e-5)


def test_the_mean_square_is_one_where_half_is_the_vocabulary_and_half_the_competitors(model):
    test = BasisTest(model.W)
    p = np.stack([model.p(seed) for seed in range(5)])
    q = np.mean([np.minimum(1, kappa(row, test.m) * row) for row in p], axis=0) / test.m
    squares = test.row_lengths(p).values_V ** 2
    assert (squares.mean() + q @ squares) / 2 == pytest.approx(1, rel=1e-4)


def test_without_directions_all_rows_are_alike(model):
    lengths = BasisTest(model.W, 0).row_lengths(model.p(0)[None])
    assert lengths.values_V == pytest.approx(np.ones(len(model.W)), rel=1e-5)


def test_neither_units_nor_order_of_distributions_matter(model):
    p = np.stack([model.p(seed) for seed in range(3)])
    found = BasisTest(model.W).row_lengths(p).values_V
    assert BasisTest(100 * model.W).row_lengths(torch.from_numpy(p[::-1].copy())).values_V == pytest.approx(
        found, rel=1e-3
    )


def test_fewer_tokens_than_directions_are_no_obstacle(model):
    p = np.zeros(len(model.W))
    p[3] = 1
    lengths = BasisTest(model.W).row_lengths(p[None])
    assert np.isfinite(lengths.values_V).all()


def test_a_single_distribution_must_still_be_a_row(model):
    with pytest.raises(ValueError, match=r"expected distributions, \(N, V\)"):
        BasisTest(model.W).row_lengths(model.p(0))


@pytest.mark.parametrize(
    ("lengths", "match"),
    [
        ([1.0, np.nan], "token 1 is nan"),
        ([np.inf, 1.0], "token 0 is inf"),
        ([1.0, 1.0, 0.0], "token 2 is 0.0"),
        ([1.0, -2.0], "token 1 is -2.0"),
        ([[1.0, 2.0]], r"shape \(1, 2\)"),
        ([], r"shape \(0,\)"),
    ],
)
def test_invalid_row_lengths_are_refused(lengths, match):
    with pytest.raises(ValueError, match=match):
        RowLengths(np.array(lengths))


def test_it_is_a_value():
    given = np.array([0.5, 1.5])
    lengths, same = RowLengths(given), RowLengths(torch.tensor([0.5, 1.5]))
    assert lengths == same
    assert hash(lengths) == hash(same)
    assert lengths != RowLengths(np.array([0.5, 1.0]))
    assert lengths != RowLengths(np.ones(3))
    assert lengths != "RowLengths"
    assert repr(lengths) == "RowLengths(2 tokens, 0.5 … 1.5)"
    given[0] = 7
    assert lengths.values_V.tolist() == [0.5, 1.5]
    with pytest.raises(ValueError, match="read-only"):
        lengths.values_V[0] = 7


def test_another_vocabulary_is_refused():
    assert RowLengths(np.ones(3)).for_vocabulary(3).tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match="lengths for 3 tokens do not fit probabilities of 4"):
        RowLengths(np.ones(3)).for_vocabulary(4)
