import math

import pytest
import torch

from unspool.nn.rnn_attention import AdditiveScore


def test_by_hand():
    score = AdditiveScore(1, 2)
    with torch.no_grad():
        score.query.weight.fill_(2.0)
        score.key.weight.copy_(torch.tensor([[1.0, -1.0]]))
        score.key.bias.fill_(0.5)
        score.score.weight.fill_(3.0)
    memory = torch.tensor([[[0.2, 0.1], [1.0, 0.0]]])
    found = score(torch.tensor([[[0.3]]]), score.keys(memory))
    want = [3 * math.tanh(0.6 + 0.1 + 0.5), 3 * math.tanh(0.6 + 1.0 + 0.5)]
    assert found[0, 0].tolist() == pytest.approx(want)


def test_queries_side_by_side_are_scored_as_if_alone():
    torch.manual_seed(0)
    score = AdditiveScore(4, 6)
    query, keys = torch.randn(2, 3, 4), score.keys(torch.randn(2, 5, 6))
    together = score(query, keys)
    assert together.shape == (2, 3, 5)
    for w in range(3):
        torch.testing.assert_close(score(query[:, w : w + 1], keys)[:, 0], together[:, w])
