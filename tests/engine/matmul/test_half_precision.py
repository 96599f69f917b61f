import numpy as np
import pytest
import torch

from unspool.engine.stored_weights import StoredWeight
from unspool.engine.weight_formats import BF16, F16


@pytest.mark.parametrize(("kind", "dtype"), [(F16, torch.float16), (BF16, torch.bfloat16)])
def test_numbers_are_exact(kind, dtype, multiplied):
    numbers = torch.tensor([[1.5, -0.25, 6e-5, 300.0] * 8]).to(dtype)
    weight = StoredWeight(kind, numbers.view(torch.uint8), (1, 32))
    x = np.eye(32, dtype=np.float32)
    np.testing.assert_array_equal(multiplied([weight], x)[:, 0], numbers[0].float().numpy())
    np.testing.assert_array_equal(multiplied([weight], x[2:3])[0], numbers[0, 2:3].float().numpy())
