import pytest
import torch

from unspool.models.loading.weights import parse_dtype


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
def test_by_name_or_as_torch_calls_it(name):
    assert parse_dtype(name) is parse_dtype(getattr(torch, name)) is getattr(torch, name)


@pytest.mark.parametrize("dtype", ["float8", "", "Float32", None, 16, [], torch.int8, torch.complex64, float])
def test_others_are_refused_in_words(dtype):
    with pytest.raises(ValueError, match=r"^dtype .* is unknown: choose from float32, bfloat16, float16"):
        parse_dtype(dtype)
