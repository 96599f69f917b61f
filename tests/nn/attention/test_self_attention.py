import math

import pytest
import torch

from unspool.nn.attention import KeyValues, SelfAttention


def loop_over_heads(layer, x_TD):
    """The equation, one head and one position at a time."""
    H, K, I = layer.heads, layer.kv_heads, layer.head_width  # noqa: E741
    q, k, v = layer.qkv(x_TD).split((H * I, K * I, K * I), dim=-1)
    out = torch.zeros(len(x_TD), H * I)
    for head in range(H):
        own, shared = slice(head * I, head * I + I), slice(head // (H // K) * I, head // (H // K) * I + I)
        for t in range(len(x_TD)):
            alpha = torch.softmax(k[: t + 1, shared] @ q[t, own] / math.sqrt(I), dim=0)
            out[t, own] = alpha @ v[: t + 1, shared]
    return layer.out(out)


def make(heads, kv_heads):
    torch.manual_seed(0)
    return SelfAttention(12, heads, kv_heads, 4, qkv_bias=True, out_bias=True)


def test_one_key_is_copied():
    layer = SelfAttention(2, 1, 1, 2, qkv_bias=False, out_bias=False)
    layer.qkv.weight.data = torch.cat([torch.eye(2), torch.eye(2), 3 * torch.eye(2)])
    layer.out.weight.data = torch.eye(2)
    # the first position sees itself only: its value is 3x
    assert layer(torch.tensor([[[1.0, 2.0], [5.0, 5.0]]]))[0, 0].tolist() == [3.0, 6.0]


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (4, 2), (6, 1)])
def test_equals_a_loop_over_heads(heads, kv_heads):
    layer = make(heads, kv_heads)
    x = torch.randn(2, 5, 12)
    for row in range(2):
        torch.testing.assert_close(layer(x)[row], loop_over_heads(layer, x[row]), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_step_by_step_equals_parallel(kv_heads):
    layer = make(4, kv_heads)
    x = torch.randn(3, 6, 12)
    past = KeyValues()
    steps = [layer(x[:, t : t + 1], past=past) for t in range(6)]
    torch.testing.assert_close(torch.cat(steps, dim=1), layer(x), atol=1e-5, rtol=1e-5)


def test_the_future_changes_nothing():
    layer = make(4, 2)
    x = torch.randn(1, 6, 12)
    y = x.clone()
    y[:, 4:] = 9.0
    torch.testing.assert_close(layer(x)[:, :4], layer(y)[:, :4])


def test_masked_columns_change_nothing():
    layer = make(4, 2)
    x = torch.randn(1, 4, 12)
    mask = torch.ones(4, 4).tril().bool()
    mask[1:, 0] = False
    y = x.clone()
    y[:, 0] = 7.0
    mask = mask.view(1, 1, 4, 4)
    torch.testing.assert_close(layer(x, mask=mask)[:, 1:], layer(y, mask=mask)[:, 1:])


def test_heads_that_cannot_share_are_refused():
    with pytest.raises(ValueError, match="divisor"):
        SelfAttention(12, 4, 3, 4, qkv_bias=False, out_bias=False)


@pytest.mark.parametrize("T", [1, 5])
def test_without_a_direction_the_last_position_is_seen_by_the_first(T):
    layer = SelfAttention(12, 4, 2, 4, qkv_bias=True, out_bias=True, causal=False)
    x = torch.randn(1, T, 12)
    flipped = layer(x.flip(1)).flip(1)
    torch.testing.assert_close(layer(x), flipped, atol=1e-5, rtol=1e-5)
    padding = torch.zeros(1, 1, 1, T + 2)
    padding[..., T:] = -math.inf
    longer = layer(torch.cat((x, torch.randn(1, 2, 12)), dim=1), mask=padding)
    torch.testing.assert_close(longer[:, :T], layer(x), atol=1e-5, rtol=1e-5)
