import numba
import numpy as np
import pytest
import torch

from unspool.engine.rnn.source_context import mix, weigh
from unspool.nn.rnn_attention import SCORES, attend


@numba.njit
def told(v, q, k, memory, begin, length, width, memory_width, room):
    alpha, out = np.full(room, np.float32(np.nan)), np.full(memory_width, np.float32(np.nan))
    weigh(v, q, 0, k, begin, length, width, alpha, 0, room)
    mix(alpha, 0, memory, begin, length, memory_width, out, 0)
    return alpha, out


def test_two_tokens_by_hand():
    """Scores 0 and ln 3: α = ¼ and ¾."""
    k = np.array([[9.0], [0.0], [np.log(3)]], np.float32)
    memory = np.array([[9.0, 9.0], [4.0, 0.0], [8.0, 4.0]], np.float32)
    q, none = np.ones(1, np.float32), np.empty(0, np.float32)
    alpha, out = told(none, q, k.reshape(-1), memory.reshape(-1), 1, 2, 1, 2, 16)
    np.testing.assert_allclose(alpha, [0.25, 0.75] + [0] * 14, rtol=1e-6)
    np.testing.assert_allclose(out, [7, 3], rtol=1e-6)


@pytest.mark.parametrize("kind", SCORES)
@pytest.mark.parametrize("length", [1, 8, 13])
@pytest.mark.parametrize("width", [8, 11])
@torch.inference_mode()
def test_every_score_is_torchs(kind, length, width):
    torch.manual_seed(length)
    memory_width = width if kind == "dot" else width + 5
    score = SCORES[kind](width, memory_width)
    query, memory = torch.randn(1, 1, width), torch.randn(1, length, memory_width)
    keys = score.keys(memory)
    want, want_alpha = attend(score, query, keys, memory, None)
    v, q = np.empty(0, np.float32), query[0, 0].numpy()
    if kind == "additive":
        v, q = score.score.weight[0].numpy(), score.query(query)[0, 0].numpy()
    flat = (keys.numpy().reshape(-1), memory.numpy().reshape(-1))
    alpha, out = told(v, q, *flat, 0, length, width, memory_width, 16)
    np.testing.assert_allclose(alpha[:length], want_alpha[0, 0], atol=1e-6)
    assert not alpha[length:].any()
    np.testing.assert_allclose(out, want[0, 0], atol=1e-5)
