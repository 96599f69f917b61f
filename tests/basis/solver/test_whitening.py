import tracemalloc

import numpy as np
import pytest
import torch

from unspool.basis.solver.whitening import whiten


def test_whitened_rows_are_round_and_keep_every_s(model, white):
    X = white.X_VK.astype(np.float64)
    assert np.abs(X.T @ X / len(X) - np.eye(X.shape[1])).max() < 1e-5
    lam = np.random.default_rng(0).standard_normal(X.shape[1])
    assert white.project((white.basis_MK @ lam)[:, None])[:, 0] == pytest.approx(X @ lam, abs=1e-4)
    assert white.norm_V == pytest.approx(np.linalg.norm(X, axis=1))


def test_blocks_give_what_the_whole_matrix_gives(model, white):
    wide = np.column_stack([model.W.astype(np.float64), np.ones(len(model.W))])
    tokens = np.array([5, 0, 5999])
    assert (white.rows(tokens) == wide[tokens]).all()
    y = np.random.default_rng(0).standard_normal((len(wide), 2))
    assert white.combine(y) == pytest.approx(wide.T @ y)
    assert white.combine(y[:3], tokens) == pytest.approx(wide[tokens].T @ y[:3])
    assert white.row_norm == pytest.approx(np.linalg.norm(wide, axis=1).max())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_torch_matrices_of_every_type_are_read_exactly(dtype):
    W = torch.randn(50, 4, generator=torch.Generator().manual_seed(0)).to(dtype)
    white = whiten(W)
    assert white.weight.W is not None
    assert (white.weight[np.arange(50)] == W.double().numpy()).all()
    assert np.abs(white.X_VK - whiten(W.double().numpy()).X_VK).max() < 1e-5


def test_a_memory_map_is_not_loaded_whole(tmp_path):
    np.save(tmp_path / "W.npy", np.random.default_rng(0).standard_normal((3000, 3)).astype(np.float16))
    W = np.load(tmp_path / "W.npy", mmap_mode="r")
    white = whiten(W)
    assert np.shares_memory(white.weight.W, W)


@pytest.mark.parametrize("kind", ["memory map", "bfloat16"])
@pytest.mark.parametrize("rank", [None, 8])
def test_w_is_never_converted_whole(tmp_path, kind, rank):
    """numpy tells tracemalloc what it allocates; pages of the map and torch's tensors are not among it."""
    if kind == "memory map":
        W = np.lib.format.open_memmap(tmp_path / "W.npy", mode="w+", dtype=np.float32, shape=(30000, 64))
        W[:] = np.random.default_rng(0).standard_normal((30000, 64))
    else:
        W = torch.randn(30000, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
    tracemalloc.start()
    white = whiten(W, rank)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    kept = white.X_VK.nbytes + white.norm_V.nbytes + (0 if rank is None else white.weight.W.nbytes)
    # beside what is kept: a few blocks of 1,024 rows in float64, and squares of the width
    assert peak < kept + 6 * 8 * (1024 * 65 + 65 * 65)
    assert peak < kept + 8 * 30000 * 64 / 2


class OnAnotherDevice:
    """What a tensor on a GPU looks like from here: it has to be copied to the host."""

    def __init__(self, W):
        self.W, self.copies = W, 0

    def detach(self):
        return self

    def cpu(self):
        self.copies += 1
        return self.W


def test_a_matrix_on_another_device_is_copied_once():
    W = torch.randn(500, 4, generator=torch.Generator().manual_seed(0))
    far = OnAnotherDevice(W)
    assert (whiten(far).X_VK == whiten(W).X_VK).all()
    assert far.copies == 1


def test_the_rank_takes_the_leading_singular_directions():
    W = np.random.default_rng(0).standard_normal((200, 6)) * [9, 5, 3, 1, 0.5, 0.1] + 2
    _, _, directions = np.linalg.svd(W, full_matrices=False)
    kept = whiten(W, 2).weight.W
    expected = W @ directions[:2].T
    assert np.abs(np.abs(kept) - np.abs(expected)).max() < 1e-9
    assert whiten(W, 0).X_VK.shape == (200, 1)
    assert whiten(W, 6).weight.W is W


@pytest.mark.parametrize(
    ("W", "columns"),
    [
        (np.zeros((9, 2)), 1),  # nothing but the ones
        (np.ones((9, 3)), 1),  # constant columns say what the ones say
        (np.arange(9.0)[:, None] @ [[1, 2, -1]], 2),  # one direction and the ones
        (np.eye(3), 3),  # three rows: no more than three directions
        (1e-9 * np.random.default_rng(0).standard_normal((40, 2)), 3),  # units do not matter
        (np.random.default_rng(0).standard_normal((40, 2)) * [1e-6, 1e6], 3),
        (np.random.default_rng(0).standard_normal((40, 2)) * [1, 1e-7] + [0, 3], 3),  # an almost constant one
        (
            np.random.default_rng(0).standard_normal((40, 2)) * [1, 1e-12] + [0, 3],
            3,
        ),  # and one that is more so
        (
            np.random.default_rng(0).standard_normal((40, 1)) * [1, 1, 0] + 1e-12 * np.eye(40, 3, -2),
            3,
        ),  # rounding
        (np.random.default_rng(0).standard_normal((40, 2)) * [1e-165, 1e180], 3),
    ],
)
def test_dependent_directions_are_dropped_and_units_do_not_matter(W, columns):
    white = whiten(W)
    assert white.X_VK.shape[1] == columns
    X = white.X_VK.astype(np.float64)
    assert np.abs(X.T @ X / len(X) - np.eye(columns)).max() < 1e-5


def test_directions_of_mere_rounding_are_no_directions():
    W = np.random.default_rng(0).standard_normal((6, 20))
    assert whiten(W, 18).X_VK.shape[1] == whiten(W).X_VK.shape[1] == 6


@pytest.mark.parametrize("rank", [-1, 3])
def test_a_rank_that_is_none_is_refused(rank):
    with pytest.raises(ValueError, match="between 0 and 2"):
        whiten(np.ones((5, 2)), rank)


@pytest.mark.parametrize("W", [np.ones(3), np.ones((0, 2)), np.ones((2, 3, 4))])
def test_what_is_no_matrix_is_refused(W):
    with pytest.raises(ValueError, match="one row per token"):
        whiten(W)


@pytest.mark.parametrize("rank", [None, 1])
def test_a_matrix_with_nan_is_refused(rank):
    with pytest.raises(ValueError, match="NaN or infinite"):
        whiten(np.array([[1.0, 2.0], [np.nan, 3.0]]), rank)
