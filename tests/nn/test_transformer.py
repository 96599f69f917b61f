from typing import get_args

import pytest
import torch
from torch import nn

from unspool.models.rnn_models import RNNConfig
from unspool.models.transformer_lm import TransformerConfig
from unspool.models.transformer_seq2seq import TransformerSeq2SeqConfig
from unspool.nn.attention import CrossAttention, SelfAttention
from unspool.nn.norms import NORMS, NormPlace
from unspool.nn.transformer import (
    ACTIVATIONS,
    Block,
    CheckpointedLayer,
    FeedForward,
    enable_checkpointing,
    swiglu,
)


def make(place, norm="layer", dropout=0.0):
    torch.manual_seed(0)
    attention = SelfAttention(8, 2, 2, 4, qkv_bias=True, out_bias=True)
    feed_forward = FeedForward(8, 16, "gelu", bias=True)
    return Block(attention, feed_forward, lambda: NORMS[norm](8, 1e-5), place, dropout)


@pytest.mark.parametrize("place", ["pre", "both"])
def test_branches_of_zero_leave_the_input(place):
    block = make(place)
    for branch in (block.attention.out, block.feed_forward.down):
        branch.weight.data.zero_()
        branch.bias.data.zero_()
    x = torch.randn(2, 3, 8)
    assert torch.equal(block(x), x)


def test_post_norm_ends_normalised():
    y = make("post")(torch.randn(2, 3, 8))
    torch.testing.assert_close(y.mean(-1), torch.zeros(2, 3), atol=1e-5, rtol=0)


def test_pre_norm_by_its_equation():
    block = make("pre")
    x = torch.randn(1, 3, 8)
    middle = x + block.attention(block.attention_norm(x))
    torch.testing.assert_close(block(x), middle + block.feed_forward(block.feed_forward_norm(middle)))


@pytest.mark.parametrize("place", get_args(NormPlace))
def test_only_both_has_norms_behind_its_branches(place):
    names = {name for name, _ in make(place, "rms").named_parameters() if "post_norm" in name}
    assert bool(names) == (place == "both")


def test_dropout_works_in_training_only():
    block = make("pre", dropout=0.5)
    x = torch.randn(1, 3, 8)
    assert not torch.equal(block(x), block(x))
    block.eval()
    assert torch.equal(block(x), block(x))


def make_cross(place):
    torch.manual_seed(0)
    return Block(
        SelfAttention(8, 2, 2, 4, qkv_bias=True, out_bias=True),
        FeedForward(8, 16, "gelu", bias=True),
        lambda: NORMS["layer"](8, 1e-5),
        place,
        cross_attention=CrossAttention(8, 2, 2, 4, qkv_bias=True, out_bias=True),
    )


@pytest.mark.parametrize("place", get_args(NormPlace))
def test_attention_weights_of_the_source_do_not_change_the_output(place):
    block, x = make_cross(place), torch.randn(2, 3, 8)
    source = (*block.cross_attention.keys_values(torch.randn(2, 5, 8)), None)
    weights = []
    torch.testing.assert_close(
        block(x, source=source, cross_attentions=weights), block(x, source=source), atol=1e-5, rtol=1e-5
    )
    torch.testing.assert_close(weights[0].sum(-1), torch.ones(2, 2, 3))


def test_a_pre_norm_look_by_its_equation():
    block, x = make_cross("pre"), torch.randn(2, 3, 8)
    source = (*block.cross_attention.keys_values(torch.randn(2, 5, 8)), None)
    want = x + block.cross_attention(block.cross_attention_norm(x), *source)
    torch.testing.assert_close(block._add_branch(x, "cross_attention", *source), want)


def test_a_block_is_its_two_halves():
    block, x = make("both"), torch.randn(1, 3, 8)
    assert torch.equal(block(x), block._add_branch(block._add_branch(x, "attention"), "feed_forward"))


def test_swiglu_by_hand():
    # silu(0) = 0, silu(1) = 0.7310586; times up = (5, 2)
    assert swiglu(torch.tensor([0.0, 1.0, 5.0, 2.0])).tolist() == pytest.approx([0.0, 1.4621172])


def test_relu_network_by_hand():
    layer = FeedForward(2, 2, "relu", bias=False)
    layer.up.weight.data = torch.tensor([[1.0, 0.0], [0.0, -1.0]])
    layer.down.weight.data = torch.tensor([[2.0, 0.0], [0.0, 3.0]])
    assert layer(torch.tensor([4.0, 5.0])).tolist() == [8.0, 0.0]
    assert layer(torch.tensor([-4.0, -5.0])).tolist() == [0.0, 15.0]


def test_plain_form_has_8_d_squared_weights():
    assert sum(p.numel() for p in FeedForward(16, 64, "gelu", bias=False).parameters()) == 8 * 16**2


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_same_at_every_position(activation):
    torch.manual_seed(0)
    layer = FeedForward(6, 10, activation, bias=True)
    x = torch.randn(2, 3, 6)
    torch.testing.assert_close(layer(x)[1, 2], layer(x[1, 2]))


LM = TransformerConfig(vocab_size=11, width=16, layers=3, heads=2, inner_width=24, dropout=0.3)
PAIRS = TransformerSeq2SeqConfig(
    vocab_size=9,
    width=8,
    heads=2,
    inner_width=8,
    encoder_layers=2,
    decoder_layers=2,
    bos=1,
    eos=2,
    dropout=0.3,
)
TOKENS = torch.tensor([[1, 4, 2, 8, 3]])


class Counted(CheckpointedLayer):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return (x * x).sum()


def test_a_layer_is_passed_twice_by_hand():
    layer, x = Counted(), torch.tensor([3.0], requires_grad=True)
    enable_checkpointing(nn.Sequential(layer))
    layer(x).backward()
    assert layer.calls == 2
    assert x.grad.tolist() == [6.0]
    with torch.no_grad():
        layer(x)
    assert layer.calls == 3


def gradients(config, inputs, *, again):
    torch.manual_seed(0)
    model = config.build().train()
    if again:
        enable_checkpointing(model)
    torch.manual_seed(1)
    model(*inputs).pow(2).sum().backward()
    return {name: it.grad for name, it in model.named_parameters()}


@pytest.mark.parametrize(
    ("config", "inputs"), [(LM, (TOKENS,)), (PAIRS, (TOKENS, torch.tensor([5]), TOKENS))], ids=["lm", "pairs"]
)
def test_gradients_are_the_same_to_the_bit_with_dropout(config, inputs):
    plain, again = (gradients(config, inputs, again=it) for it in (False, True))
    assert plain.keys() == again.keys()
    assert all(torch.equal(plain[name], again[name]) for name in plain)


@pytest.mark.parametrize(
    ("config", "inputs"), [(LM, (TOKENS,)), (PAIRS, (TOKENS, torch.tensor([5]), TOKENS))], ids=["lm", "pairs"]
)
def test_less_is_kept_for_the_backward_pass(config, inputs):
    def kept(again):
        torch.manual_seed(0)
        model, sizes = config.build().train(), []
        if again:
            enable_checkpointing(model)
        own = {it.data_ptr() for it in model.parameters()}

        def note(tensor):
            if tensor.data_ptr() not in own:
                sizes.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda it: it):
            model(*inputs)
        return sum(sizes)

    assert kept(True) < kept(False) / 2


def test_where_heads_look_may_be_learnt_all_the_same():
    def gradients(again):
        torch.manual_seed(0)
        model = LM.build().eval()
        if again:
            enable_checkpointing(model)
        attentions = []
        hidden = model.hidden(TOKENS, attentions=attentions)
        (hidden.sum() + sum(it.pow(3).sum() for it in attentions)).backward()
        return [it.grad for it in model.parameters()]

    assert all(torch.equal(one, other) for one, other in zip(gradients(False), gradients(True), strict=True))


def test_a_model_without_layers_of_this_kind_is_refused():
    with pytest.raises(ValueError, match=r"train\.recompute needs Transformer blocks, which RNNLM lacks"):
        enable_checkpointing(RNNConfig(vocab_size=9, width=8).build())
