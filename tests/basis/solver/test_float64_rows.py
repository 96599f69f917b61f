import numpy as np
import torch

from unspool.basis.solver.distribution import Float64Rows


def test_rows_come_in_blocks():
    rows = Float64Rows(np.arange(5000.0)[:, None])
    assert np.concatenate([block for _, block in rows.blocks()])[:, 0].tolist() == list(range(5000))
    assert max(len(block) for _, block in rows.blocks()) <= 1024


def test_columns_can_be_left_out_whatever_w_is():
    W = np.arange(12.0).reshape(3, 4)
    for kind in (W, W.astype(np.float16), torch.tensor(W).bfloat16()):
        few = Float64Rows(kind).without(np.array([1, 2]))
        assert few.shape == (3, 2)
        assert few[np.arange(3)].tolist() == W[:, [0, 3]].tolist()
