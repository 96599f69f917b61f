import numpy as np
import pytest
import torch

from unspool.basis.arrays import as_numpy, float64


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_every_float_type_of_torch_comes_through_exactly(dtype):
    x = torch.tensor([0.1, -2.5, 3e-5], requires_grad=False).to(dtype)
    assert float64(x).tolist() == x.double().tolist()


def test_a_tensor_that_requires_gradients_is_read():
    assert as_numpy(torch.ones(2, requires_grad=True)).tolist() == [1, 1]


def test_numpy_arrays_are_not_copied():
    x = np.ones(3)
    assert as_numpy(x) is x
    assert float64(x) is x
    assert float64([1, 2]).dtype == np.float64
