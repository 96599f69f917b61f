import pytest
import torch

from unspool.nn.attention import CrossAttention, SelfAttention
from unspool.nn.norms import PLACES, ResidualShape
from unspool.nn.transformer import Block, CrossBlock, FeedForward


def make(place, norm="layer", dropout=0.0):
    torch.manual_seed(0)
    attention = SelfAttention(8, 2, 2, 4, qkv_bias=True, out_bias=True)
    feed_forward = FeedForward(8, 16, "gelu", bias=True)
    return Block(attention, feed_forward, ResidualShape(8, norm, 1e-5, place, dropout))


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


@pytest.mark.parametrize("place", PLACES)
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
    return CrossBlock(
        SelfAttention(8, 2, 2, 4, qkv_bias=True, out_bias=True),
        CrossAttention(8, 2, 2, 4, qkv_bias=True, out_bias=True),
        FeedForward(8, 16, "gelu", bias=True),
        ResidualShape(8, "layer", 1e-5, place),
    )


@pytest.mark.parametrize("place", PLACES)
def test_looking_at_a_source_with_or_without_being_watched(place):
    block, x = make_cross(place), torch.randn(2, 3, 8)
    source = (*block.cross_attention.keys_values(torch.randn(2, 5, 8)), None)
    watched, alpha = block.attend_to_source_and_tell(x, source)
    torch.testing.assert_close(watched, block.attend_to_source(x, source))
    torch.testing.assert_close(alpha.sum(-1), torch.ones(2, 3))


def test_a_pre_norm_look_by_its_equation():
    block, x = make_cross("pre"), torch.randn(2, 3, 8)
    source = (*block.cross_attention.keys_values(torch.randn(2, 5, 8)), None)
    want = x + block.cross_attention(block.cross_attention_norm(x), *source)
    torch.testing.assert_close(block.attend_to_source(x, source), want)


def test_a_block_is_its_two_halves():
    block, x = make("both"), torch.randn(1, 3, 8)
    assert torch.equal(block(x), block.apply_feed_forward(block.attend(x)))
