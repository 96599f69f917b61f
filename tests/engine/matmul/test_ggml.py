import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize
from tests.engine.matmul.conftest import stored

from unspool.engine.weight_formats import Q4_0, Q4_1, Q4_K, Q5_K, Q6_K, Q8_0


@pytest.mark.parametrize("kind", [Q8_0, Q4_0, Q4_1, Q4_K, Q5_K, Q6_K], ids=lambda kind: kind.name)
def test_numbers_are_those_of_the_gguf_package(kind, gathered):
    weight = stored(kind, 4, 512, seed=7)
    want = dequantize(weight.packed.numpy(), GGMLQuantizationType[kind.name])
    for row in range(4):
        np.testing.assert_allclose(gathered(weight, row)[512:1024], want[row], rtol=1e-6, atol=1e-7)


def test_hand_computed_q4_0(gathered):
    block = [*np.array([0.5], "<f2").tobytes(), 0x2F, *[0x88] * 15]
    weight = stored(Q4_0, 1, 32)
    weight.packed[0] = weight.packed.new_tensor(block)
    found = gathered(weight, 0)[32:64]
    assert (found[0], found[1], found[16], found[17]) == (3.5, 0, -3, 0)
