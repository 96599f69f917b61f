import math

import pytest
import torch

from unspool.nn.attention import KVCache, SelfAttention
from unspool.nn.keyless_attention import KeylessAttention, check_no_rotary, join_query_key, split_query_key


def make(heads=3, kv_heads=3, causal=True, bias=True):
    torch.manual_seed(0)
    return KeylessAttention(6, heads, kv_heads, 4, qkv_bias=bias, out_bias=bias, causal=causal)


def test_joined_by_hand():
    # I = 4, so that 1/√I = ½; one head of width 2 whose queries and keys have one row that is not 0.
    q, k = torch.zeros(1, 4, 2), torch.zeros(1, 4, 2)
    q[0, 0], k[0, 0] = torch.tensor([2.0, 4.0]), torch.tensor([1.0, 3.0])
    w, u = join_query_key(q, k, torch.tensor([[6.0, 0.0, 0.0, 0.0]]))
    assert w[0].tolist() == [[1.0, 3.0], [2.0, 6.0]]  # ½ · (2, 4)ᵀ (1, 3)
    assert u[0].tolist() == [3.0, 9.0]  # ½ · 6 · (1, 3)


@pytest.mark.parametrize("kv_heads", [1, 3])
def test_equals_a_loop_over_heads_and_positions(kv_heads):
    layer, x_TJ = make(kv_heads=kv_heads), torch.randn(4, 6)
    w, u = layer.query.weight.view(3, 6, 6), layer.query.bias.view(3, 6)
    v = layer.value(x_TJ).view(4, kv_heads, 4)
    out = torch.zeros(4, 3, 4)
    for head in range(3):
        for t in range(4):
            scores = torch.stack([x_TJ[s] @ (w[head] @ x_TJ[t]) + u[head] @ x_TJ[s] for s in range(t + 1)])
            out[t, head] = scores.softmax(0) @ v[: t + 1, head * kv_heads // 3]
    torch.testing.assert_close(layer(x_TJ[None])[0], layer.out(out.flatten(1)), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("causal", [True, False])
def test_it_attends_as_the_queries_and_keys_that_it_was_made_of(bias, causal):
    torch.manual_seed(1)
    usual = SelfAttention(6, 3, 3, 4, qkv_bias=bias, out_bias=bias, causal=causal)
    layer = make(bias=bias, causal=causal)
    q, k, v = usual.qkv.weight.data.view(9, 4, 6).split(3)
    biases = usual.qkv.bias.data.view(9, 4).split(3) if bias else None
    w, u = join_query_key(q, k, biases[0] if bias else None)
    layer.query.weight.data = w.transpose(1, 2).reshape(18, 6)
    layer.value.weight.data = v.reshape(12, 6)
    layer.out.load_state_dict(usual.out.state_dict())
    if bias:
        layer.query.bias.data, layer.value.bias.data = u.flatten(), biases[2].flatten()
    x, ours, theirs = torch.randn(2, 5, 6), [], []
    torch.testing.assert_close(layer(x, attentions=ours), usual(x, attentions=theirs), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours[0], theirs[0], atol=1e-5, rtol=1e-5)


def test_step_by_step_equals_parallel():
    layer, x, past = make(kv_heads=1), torch.randn(2, 5, 6), KVCache()
    steps = [layer(x[:, t : t + 1], past=past) for t in range(5)]
    torch.testing.assert_close(torch.cat(steps, dim=1), layer(x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("rank", [1, 2, 6])
def test_parted_is_the_nearest_of_its_rank(rank):
    torch.manual_seed(2)
    w, u = torch.randn(3, 6, 6), torch.randn(3, 6)
    again = join_query_key(*split_query_key(w, u, rank, max(rank, 4)))
    whole = torch.cat([w, u[:, None]], dim=1)
    sigma = torch.linalg.svdvals(whole)
    error = (whole - torch.cat([again[0], again[1][:, None]], dim=1)).square().sum((1, 2))
    torch.testing.assert_close(error, sigma[:, rank:].square().sum(1), atol=1e-4, rtol=1e-4)


def test_a_head_as_wide_as_the_rank_loses_nothing():
    q, k, b = torch.randn(2, 3, 6), torch.randn(2, 3, 6), torch.randn(2, 3)
    w, u = join_query_key(q, k, b)
    for again, before in zip(join_query_key(*split_query_key(w, u, 3, 3)), (w, u), strict=True):
        torch.testing.assert_close(again, before, atol=1e-5, rtol=1e-5)


def test_rotary_positions_are_refused():
    with pytest.raises(ValueError, match="a W̃ per distance"):
        check_no_rotary(True)


def test_scores_begin_as_those_of_two_matrices():
    torch.manual_seed(0)
    J, I = 64, 16  # noqa: E741
    usual = SelfAttention(J, 4, 4, I, qkv_bias=False, out_bias=False)
    w, _ = join_query_key(*usual.qkv.weight.data.view(12, I, J).split(4)[:2])
    layer = KeylessAttention(J, 4, 4, I, qkv_bias=False, out_bias=False)
    assert layer.query.weight.std().item() == pytest.approx(w.std().item(), rel=0.1)
    assert w.std().item() == pytest.approx(1 / (3 * J), rel=0.1)
    assert math.isfinite(w.sum())
