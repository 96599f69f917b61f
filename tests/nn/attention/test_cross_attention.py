import math

import pytest
import torch

from unspool.nn.attention import CrossAttention


def make(heads, kv_heads):
    torch.manual_seed(0)
    return CrossAttention(12, heads, kv_heads, 4, qkv_bias=True, out_bias=True)


def loop_over_heads(layer, x_TD, memory_SD):
    """The equation, one head and one position at a time; and the weights of all heads."""
    H, K, I = layer.heads, layer.kv_heads, layer.head_width  # noqa: E741
    q, (k, v) = layer.query(x_TD), layer.kv(memory_SD).split((K * I, K * I), dim=-1)
    out, alphas = torch.zeros(len(x_TD), H * I), torch.zeros(H, len(x_TD), len(memory_SD))
    for head in range(H):
        own, shared = slice(head * I, head * I + I), slice(head // (H // K) * I, head // (H // K) * I + I)
        for t in range(len(x_TD)):
            alphas[head, t] = torch.softmax(k[:, shared] @ q[t, own] / math.sqrt(I), dim=0)
            out[t, own] = alphas[head, t] @ v[:, shared]
    return layer.out(out), alphas


def test_one_key_is_copied():
    layer = CrossAttention(2, 1, 1, 2, qkv_bias=False, out_bias=False)
    layer.kv.weight.data = torch.cat([torch.eye(2), 3 * torch.eye(2)])
    layer.out.weight.data = torch.eye(2)
    source = layer.keys_values(torch.tensor([[[1.0, 2.0]]]))
    assert layer(torch.tensor([[[5.0, 7.0], [0.0, 1.0]]]), *source)[0].tolist() == [[3.0, 6.0], [3.0, 6.0]]


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (4, 2), (6, 1)])
@pytest.mark.parametrize("T", [1, 5])
def test_equals_a_loop_over_heads(heads, kv_heads, T):
    layer = make(heads, kv_heads)
    x, memory = torch.randn(2, T, 12), torch.randn(2, 3, 12)
    source = layer.keys_values(memory)
    watched, alpha = layer.watched(x, *source)
    torch.testing.assert_close(layer(x, *source), watched, atol=1e-5, rtol=1e-5)
    again, by_head = layer.watched_heads(x, *source)
    torch.testing.assert_close(again, watched, atol=1e-5, rtol=1e-5)
    for row in range(2):
        want, alphas = loop_over_heads(layer, x[row], memory[row])
        torch.testing.assert_close(watched[row], want, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(alpha[row], alphas.mean(0), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(by_head[row], alphas, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("T", [1, 3])
def test_rows_that_share_a_source_are_answered_as_if_alone(T):
    layer = make(4, 2)
    x, memory = torch.randn(6, T, 12), torch.randn(2, 5, 12)
    padding = torch.zeros(2, 1, 1, 5)
    padding[1, ..., 3:] = -math.inf
    source = layer.keys_values(memory)
    together, alpha = layer.watched(x, *source, padding)
    torch.testing.assert_close(layer(x, *source, padding), together, atol=1e-5, rtol=1e-5)
    for row in range(6):
        alone = layer.keys_values(memory[row // 3 : row // 3 + 1, : 5 if row < 3 else 3])
        torch.testing.assert_close(layer(x[row : row + 1], *alone)[0], together[row], atol=1e-5, rtol=1e-5)
    assert not alpha[3:, :, 3:].any()


def test_the_order_of_the_source_does_not_matter():
    layer = make(4, 2)
    x, memory = torch.randn(2, 3, 12), torch.randn(2, 5, 12)
    shuffled = memory[:, [4, 2, 0, 1, 3]]
    torch.testing.assert_close(layer(x, *layer.keys_values(memory)), layer(x, *layer.keys_values(shuffled)))


def test_heads_that_cannot_be_grouped_are_refused():
    with pytest.raises(ValueError, match="4 query heads cannot share 3"):
        make(4, 3)
