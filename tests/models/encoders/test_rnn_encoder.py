import pytest
import torch
from torch import nn

from unspool.models.encoders import RNNEncoderConfig


def make(**changes):
    torch.manual_seed(0)
    embed = nn.Embedding(9, 6)
    return RNNEncoderConfig(**{"width": 6, **changes}).build(embed).eval()


@torch.no_grad()
def test_it_reads_what_the_network_reads():
    encoder = make(cell="lstm", layers=2)
    tokens = torch.tensor([[3, 4, 5]])
    want, _ = encoder.rnn.read(encoder._embed[0](tokens))
    torch.testing.assert_close(encoder(tokens, torch.tensor([3])), want)


@pytest.mark.parametrize("bidirectional", [False, True])
@torch.no_grad()
def test_padding_changes_neither_vectors_nor_summary(bidirectional):
    encoder = make(bidirectional=bidirectional)
    assert encoder.out_width == (12 if bidirectional else 6)
    tokens, lengths = torch.tensor([[3, 4, 5, 6], [7, 8, 0, 0]]), torch.tensor([4, 2])
    memory = encoder(tokens, lengths)
    alone = encoder(tokens[1:, :2], torch.tensor([2]))
    torch.testing.assert_close(memory[1:, :2], alone)
    summary = encoder.summary(memory, lengths)
    torch.testing.assert_close(summary[1:], encoder.summary(alone, torch.tensor([2])))
    torch.testing.assert_close(summary[0, :6], memory[0, 3, :6])


def test_the_embedding_stays_the_models():
    assert not any("embed" in name for name, _ in make().named_parameters())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cell": "elman"}, "'elman' is not a known value of RNNEncoderConfig.cell: choose from gru, lstm"),
        ({"layers": 0}, "layers is 0"),
    ],
)
def test_shapes_that_cannot_be_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        make(**changes)
