import numpy as np
import pytest
import torch

from unspool.basis.whitening import Rows, whiten


def test_two_tokens_are_whitened_by_hand():
    # W̃ = [[1, 1], [−1, 1]] is orthogonal with columns of mean square 1 already: X is W̃ up to a rotation.
    white = whiten(np.array([[1.0], [-1.0]]))
    np.testing.assert_allclose(white.X_VK @ white.X_VK.T, 2 * np.eye(2), atol=1e-6)
    np.testing.assert_allclose(white.column_M, [1, 1])
    assert white.m == 2
    assert white.row_norm == pytest.approx(2**0.5)


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_the_vocabulary_is_round_and_slopes_mean_the_same(scale):
    dice = np.random.default_rng(0)
    W = scale * dice.normal(size=(2500, 6)) * [1, 1, 1, 1, 10, 1] + 3
    white, lam = whiten(W), dice.normal(size=(7, 2))
    np.testing.assert_allclose(white.X_VK.T @ white.X_VK / 2500, np.eye(7), atol=1e-4)
    np.testing.assert_allclose(white.norm_V, np.linalg.norm(white.X_VK, axis=1), rtol=1e-5)
    np.testing.assert_allclose(white.project(white.basis_MK @ lam), white.X_VK @ lam, atol=1e-3)


def test_rows_projections_and_combinations_are_those_of_w_with_a_column_of_ones():
    dice = np.random.default_rng(1)
    W, slopes, y = dice.normal(size=(30, 3)), dice.normal(size=(4, 2)), dice.normal(size=(30, 2))
    white, whole, some = whiten(W), np.column_stack([W, np.ones(30)]), np.array([4, 0, 7])
    np.testing.assert_array_equal(white.rows(some), whole[some])
    np.testing.assert_allclose(white.project(slopes), whole @ slopes)
    np.testing.assert_allclose(white.project(slopes, some), whole[some] @ slopes)
    np.testing.assert_allclose(white.combine(y), whole.T @ y)
    np.testing.assert_allclose(white.combine(y[:3], some), whole[some].T @ y[:3])


def test_dependent_columns_are_dropped():
    column = np.arange(5.0)[:, None]
    W = np.hstack([column, 2 * column, np.full((5, 1), 7.0), np.zeros((5, 1))])
    assert whiten(W).X_VK.shape == (5, 2)


def test_a_lower_rank_keeps_the_leading_directions():
    W = np.diag([5.0, 3.0, 1.0])
    np.testing.assert_allclose(np.abs(whiten(W, 2).weight.W), [[5, 0], [0, 3], [0, 0]], atol=1e-12)
    assert whiten(W, 0).X_VK.shape == (3, 1)
    assert whiten(W).weight.W is W


def test_rows_come_in_float64_from_any_type():
    rows = Rows(torch.tensor([[0.5], [1.5]], dtype=torch.bfloat16))
    assert rows[:].dtype == np.float64
    assert np.concatenate([block for _, block in rows.blocks(np.array([1, 0, 1]))])[:, 0].tolist() == [
        1.5,
        0.5,
        1.5,
    ]


def test_what_is_no_matrix_is_refused():
    with pytest.raises(ValueError, match="expected"):
        whiten(np.zeros(3))
    with pytest.raises(ValueError, match="between 0 and 2"):
        whiten(np.ones((3, 2)), -1)
    for rank in (1, None):
        with pytest.raises(ValueError, match="NaN"):
            whiten(np.array([[1.0, np.nan], [1.0, 2.0]]), rank)
