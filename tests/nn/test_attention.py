import math

import pytest
import torch
import torch.nn.functional as F

from unspool.nn.attention import (
    CrossAttention,
    KVCache,
    QueryKeyNorm,
    SelfAttention,
    attention_with_weights,
    find_arc_hits,
    label_arcs,
    word_attention,
)


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
    past = KVCache()
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


def make_cross_attention(heads, kv_heads):
    torch.manual_seed(0)
    return CrossAttention(12, heads, kv_heads, 4, qkv_bias=True, out_bias=True)


def loop_over_heads_cross_attention(layer, x_TD, memory_SD):
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


def test_cross_attention_one_key_is_copied():
    layer = CrossAttention(2, 1, 1, 2, qkv_bias=False, out_bias=False)
    layer.kv.weight.data = torch.cat([torch.eye(2), 3 * torch.eye(2)])
    layer.out.weight.data = torch.eye(2)
    source = layer.keys_values(torch.tensor([[[1.0, 2.0]]]))
    assert layer(torch.tensor([[[5.0, 7.0], [0.0, 1.0]]]), *source)[0].tolist() == [[3.0, 6.0], [3.0, 6.0]]


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (4, 2), (6, 1)])
@pytest.mark.parametrize("T", [1, 5])
def test_cross_attention_equals_a_loop_over_heads(heads, kv_heads, T):
    layer = make_cross_attention(heads, kv_heads)
    x, memory = torch.randn(2, T, 12), torch.randn(2, 3, 12)
    source = layer.keys_values(memory)
    out, weights = layer(x, *source), []
    torch.testing.assert_close(layer(x, *source, None, weights), out, atol=1e-5, rtol=1e-5)
    for row in range(2):
        want, alphas = loop_over_heads_cross_attention(layer, x[row], memory[row])
        torch.testing.assert_close(out[row], want, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(weights[0][row], alphas, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("T", [1, 3])
def test_rows_that_share_a_source_are_answered_as_if_alone(T):
    layer = make_cross_attention(4, 2)
    x, memory = torch.randn(6, T, 12), torch.randn(2, 5, 12)
    padding = torch.zeros(2, 1, 1, 5)
    padding[1, ..., 3:] = -math.inf
    source = layer.keys_values(memory)
    weights = []
    together = layer(x, *source, padding, weights)
    torch.testing.assert_close(layer(x, *source, padding), together, atol=1e-5, rtol=1e-5)
    for row in range(6):
        alone = layer.keys_values(memory[row // 3 : row // 3 + 1, : 5 if row < 3 else 3])
        alphas = []
        out = layer(x[row : row + 1], *alone, None, alphas)[0]
        torch.testing.assert_close(out, together[row], atol=1e-5, rtol=1e-5)
        seen = alphas[0].shape[-1]
        torch.testing.assert_close(weights[0][row, ..., :seen], alphas[0][0], atol=1e-5, rtol=1e-5)
        assert not weights[0][row, ..., seen:].any()


def test_the_order_of_the_source_does_not_matter():
    layer = make_cross_attention(4, 2)
    x, memory = torch.randn(2, 3, 12), torch.randn(2, 5, 12)
    shuffled = memory[:, [4, 2, 0, 1, 3]]
    torch.testing.assert_close(layer(x, *layer.keys_values(memory)), layer(x, *layer.keys_values(shuffled)))


def columns(*values):
    """(2 rows, 1 head, T, 1): row 0 holds v, row 1 holds v + 100."""
    base = torch.tensor(values, dtype=torch.float32)
    return torch.stack((base, base + 100)).view(2, 1, -1, 1)


def test_appended_columns_stand_in_order():
    kept = KVCache(reserve=1)
    kept.append(columns(1, 2), columns(-1, -2))
    keys, values = kept.append(columns(3), columns(-3))
    assert keys[0].flatten().tolist() == [1, 2, 3]
    assert values[0].flatten().tolist() == [-1, -2, -3]
    assert kept.length == 3


def test_it_grows_without_loss():
    kept = KVCache()
    for t in range(40):
        keys, _ = kept.append(columns(t), columns(t))
    assert keys[1].flatten().tolist() == [100 + t for t in range(40)]


def test_rows_are_repeated_and_dropped():
    kept = KVCache()
    kept.append(columns(1, 2), columns(1, 2))
    kept.select(torch.tensor([1, 1, 0]))
    keys, _ = kept.append(torch.zeros(3, 1, 1, 1), torch.zeros(3, 1, 1, 1))
    assert keys.flatten(1).tolist() == [[101, 102, 0], [101, 102, 0], [1, 2, 0]]


def test_select_since_leaves_earlier_columns():
    kept = KVCache()
    kept.append(columns(1, 2), columns(1, 2))
    kept.select(torch.tensor([1, 0]), since=1)
    keys, _ = kept.append(columns(3), columns(3))
    assert keys.flatten(1).tolist() == [[1, 102, 3], [101, 2, 103]]


def test_truncated_columns_are_overwritten():
    kept = KVCache()
    kept.append(columns(1, 2, 3), columns(1, 2, 3))
    kept.truncate(1)
    keys, _ = kept.append(columns(9), columns(9))
    assert keys[0].flatten().tolist() == [1, 9]


def test_by_hand():
    q, k = torch.tensor([[3.0, 4.0], [0.0, 2.0]]), torch.tensor([[1.0, 7.0]])
    heads = QueryKeyNorm(2, 1, 2, 0.0, "head")
    found, _ = heads(q, k)
    # The mean squares of the heads are 12.5 and 2, of both together 7.25.
    torch.testing.assert_close(found, q / torch.tensor([[12.5], [2.0]]).sqrt())
    whole = QueryKeyNorm(2, 1, 2, 0.0, "whole")
    torch.testing.assert_close(whole(q, k)[0], q / 7.25**0.5)
    torch.testing.assert_close(whole(q, k)[1], heads(q, k)[1])  # of one head, both are the same


@pytest.mark.parametrize("kind", ["head", "whole"])
def test_the_length_of_what_comes_in_does_not_matter(kind):
    torch.manual_seed(0)
    q, k = torch.randn(5, 4, 6), torch.randn(5, 2, 6)
    norm = QueryKeyNorm(4, 2, 6, 0.0, kind)
    for one, other in zip(norm(q, k), norm(9 * q, 0.1 * k), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_attention_with_weights_by_hand():
    # Scores ln 1 and ln 3 for the only query: it looks at the values 1 and 5 with ¼ and ¾.
    q, k = torch.ones(1, 1, 1, 1), torch.tensor([0.0, math.log(3)]).view(1, 1, 2, 1)
    out, alpha = attention_with_weights(q, k, torch.tensor([1.0, 5.0]).view(1, 1, 2, 1), 1.0)
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
    out, alpha = attention_with_weights(q, k, v, 6**-0.5, mask, causal=kind == "causal")
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
    x, attentions = torch.randn(2, T, 12), []
    torch.testing.assert_close(layer(x, attentions=attentions), layer(x), atol=1e-5, rtol=1e-5)
    (alpha,) = attentions
    assert alpha.shape == (2, 4, T, T)


def test_word_attention_by_hand():
    # Tokens 0 (BOS), 1 and 2 (a word), 3 (another).
    alpha = torch.tensor([[[1.0, 0, 0, 0], [0.5, 0.5, 0, 0], [0.2, 0.4, 0.4, 0], [0.1, 0.2, 0.3, 0.4]]])
    found = word_attention(alpha, [(1, 2), (3,)])
    assert found[0].tolist() == [pytest.approx([0.65, 0.0]), pytest.approx([0.5, 0.4])]


def test_words_of_one_token_are_the_tokens():
    alpha = torch.randn(2, 4, 4).softmax(-1)
    torch.testing.assert_close(word_attention(alpha, [(0,), (1,), (2,), (3,)]), alpha)


def test_arcs_go_from_the_later_word_to_the_earlier():
    words = [(1, "nsubj"), (None, "root"), (1, "obj"), (1, "nsubj:pass")]
    assert label_arcs(words, "nsubj") == [(1, 0), (3, 1)]
    assert label_arcs(words, "nsubj:pass") == [(3, 1)]
    assert label_arcs(words, "root") == []


def test_a_head_named_after_a_label_finds_all_its_arcs():
    arcs = [(1, 0), (3, 1)]
    alpha = torch.full((2, 4, 4), 0.1)
    for later, earlier in arcs:
        alpha[0, later, earlier] = 1.0
    alpha[1] = torch.eye(4)  # looks at itself, which is left out; then the first word is as good as any
    assert find_arc_hits(alpha, arcs).tolist() == [[True, True], [True, False]]
