import math

import pytest
import torch
import torch.nn.functional as F

from unspool.nn.attention import SelfAttention
from unspool.nn.attention_weights import watched_attention


def test_by_hand():
    # Scores ln 1 and ln 3 for the only query: it looks at the values 1 and 5 with ¼ and ¾.
    q, k = torch.ones(1, 1, 1, 1), torch.tensor([0.0, math.log(3)]).view(1, 1, 2, 1)
    out, alpha = watched_attention(q, k, torch.tensor([1.0, 5.0]).view(1, 1, 2, 1), 1.0)
    assert alpha.flatten().tolist() == pytest.approx([0.25, 0.75])
    assert out.item() == pytest.approx(4.0)


@pytest.mark.parametrize("kind", ["none", "bool", "float", "causal"])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_equals_what_torch_attends_to(kind, kv_heads):
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 4, 5, 6), torch.randn(2, kv_heads, 5, 6), torch.randn(2, kv_heads, 5, 6)
    may = torch.ones(2, 1, 1, 5, dtype=torch.bool)
    may[1, ..., 3:] = False
    mask = {"bool": may, "float": torch.zeros(2, 1, 1, 5).masked_fill(~may, -torch.inf)}.get(kind)
    out, alpha = watched_attention(q, k, v, 6**-0.5, mask, causal=kind == "causal")
    expected = F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=kind == "causal", enable_gqa=True
    )
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(alpha.sum(-1), torch.ones(2, 4, 5))
    if kind == "causal":
        assert not alpha.triu(1).any()


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("T", [1, 5])
def test_a_watched_layer_says_the_same(causal, T):
    torch.manual_seed(0)
    layer = SelfAttention(12, 4, 2, 4, qkv_bias=True, out_bias=True, causal=causal)
    x, looks = torch.randn(2, T, 12), []
    torch.testing.assert_close(layer(x, looks=looks), layer(x), atol=1e-5, rtol=1e-5)
    (alpha,) = looks
    assert alpha.shape == (2, 4, T, T)
