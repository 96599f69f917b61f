import numpy as np
import torch

from unspool.basis.arrays import as_numpy, float64


def test_bfloat16_becomes_the_same_numbers():
    x = torch.tensor([0.5, -1.25, 3.0], dtype=torch.bfloat16, requires_grad=True)
    assert as_numpy(x).tolist() == [0.5, -1.25, 3.0]
    assert as_numpy(x).dtype == np.float32
    assert float64(x).dtype == np.float64


def test_nothing_is_copied_without_need():
    x = np.arange(3.0)
    assert float64(x) is x
    assert np.shares_memory(as_numpy(torch.from_numpy(x)), x)


def test_no_float_type_loses_anything():
    x = np.random.default_rng(0).normal(size=100)
    for dtype in (np.float16, np.float32):
        np.testing.assert_array_equal(float64(x.astype(dtype)).astype(dtype), x.astype(dtype))
