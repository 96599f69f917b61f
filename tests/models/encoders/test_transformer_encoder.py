import pytest
import torch
from torch import nn

from unspool.models.encoders import TransformerEncoderConfig

SHAPE = {"width": 8, "heads": 2, "inner_width": 12, "layers": 2}


def make(**changes):
    torch.manual_seed(0)
    return TransformerEncoderConfig(**{**SHAPE, **changes}).build(nn.Embedding(9, 8)).eval()


KINDS = [{}, {"positions": "sinusoidal"}, {"positions": "learned", "context": 6}, {"positions": "none"}]


@pytest.mark.parametrize("changes", KINDS)
@torch.no_grad()
def test_padding_changes_neither_vectors_nor_summary(changes):
    encoder = make(**changes)
    tokens, lengths = torch.tensor([[3, 4, 5, 6], [7, 8, 0, 0]]), torch.tensor([4, 2])
    memory = encoder(tokens, lengths)
    alone = encoder(tokens[1:, :2], torch.tensor([2]))
    torch.testing.assert_close(memory[1:, :2], alone, atol=1e-5, rtol=1e-5)
    summary = encoder.summary(memory, lengths)
    torch.testing.assert_close(summary[1], alone[0].mean(0), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("changes", KINDS)
@torch.no_grad()
def test_only_positions_tell_the_order(changes):
    encoder, order = make(**changes), [2, 0, 3, 1]
    tokens, lengths = torch.tensor([[3, 4, 5, 6]]), torch.tensor([4])
    shuffled = encoder(tokens[:, order], lengths)
    same = torch.allclose(shuffled, encoder(tokens, lengths)[:, order], atol=1e-5)
    assert same == (changes.get("positions") == "none")


@torch.no_grad()
def test_the_first_token_sees_the_last():
    encoder, lengths = make(), torch.tensor([3])
    one, other = encoder(torch.tensor([[3, 4, 5]]), lengths), encoder(torch.tensor([[3, 4, 6]]), lengths)
    assert not torch.allclose(one[:, 0], other[:, 0], atol=1e-3)


def test_a_text_beyond_the_context_is_refused():
    with pytest.raises(ValueError, match="a source has 7 tokens but the context is 6"):
        make(positions="learned", context=6)(torch.ones(1, 7, dtype=torch.long), torch.tensor([7]))


def test_no_layer_is_refused():
    with pytest.raises(ValueError, match="layers is 0, but must be a whole number ≥ 1"):
        make(layers=0)
