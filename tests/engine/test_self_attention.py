import numpy as np
import pytest
import torch

from unspool.engine.attention import MAX_QUERIES, ROWS_PER_CHUNK
from unspool.models import TransformerConfig

SHAPES = {
    "grouped": {"heads": 6, "kv_heads": 2},
    "one head": {"heads": 1},
    "more queries of a key than a pass takes": {"heads": 50, "kv_heads": 1, "head_width": 2},
    "windows": {"heads": 4, "window": 5, "windowed_layers": (0,)},
}


def logp(model, prompts):
    with torch.inference_mode():
        return model.start(prompts)[0].logp_NV.numpy()


@pytest.mark.parametrize("name", SHAPES)
def test_rows_attend_to_their_own_sequence_only(name):
    torch.manual_seed(0)
    shape = {"vocab_size": 40, "width": 24, "layers": 2, "inner_width": 32, **SHAPES[name]}
    model = TransformerConfig(**shape).build().eval()
    rng = np.random.default_rng(0)
    prompts = [rng.integers(3, 40, 1 + n % 23).tolist() for n in range(2 * ROWS_PER_CHUNK + 1)]
    prompts.append(rng.integers(3, 40, MAX_QUERIES + 3).tolist())
    model.engine = "compiled"
    alone = np.concatenate([logp(model, [prompt]) for prompt in prompts])
    for count in (2, ROWS_PER_CHUNK, ROWS_PER_CHUNK + 1, len(prompts)):
        np.testing.assert_array_equal(logp(model, prompts[:count]), alone[:count])
    model.engine = "torch"
    np.testing.assert_allclose(logp(model, prompts), alone, rtol=1e-4, atol=1e-5)
