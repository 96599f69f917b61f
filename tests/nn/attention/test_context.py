import math

import pytest
import torch

from unspool.nn.rnn_attention import SCORES, DotScore, attend, last, mean, padding

MEMORY = torch.tensor([[[1.0, 2.0], [3.0, 4.0], [9.0, 9.0]], [[5.0, 6.0], [7.0, 8.0], [0.0, 1.0]]])
LENGTHS = torch.tensor([2, 3])


def test_last_is_each_directions_own_end():
    assert last(MEMORY, LENGTHS, False).tolist() == [[3.0, 4.0], [0.0, 1.0]]
    assert last(MEMORY, LENGTHS, True).tolist() == [[3.0, 2.0], [0.0, 6.0]]


def test_mean_leaves_padding_out():
    assert mean(MEMORY, LENGTHS).tolist() == [[2.0, 3.0], [4.0, 5.0]]


def test_padding_is_cut_and_nothing_is_added_where_there_is_none():
    assert padding(LENGTHS, 3).tolist() == [[0.0, 0.0, -math.inf], [0.0, 0.0, 0.0]]
    assert padding(torch.tensor([3, 3]), 3) is None


def test_attention_by_hand():
    query = torch.tensor([[[math.log(2.0), 0.0]]])
    memory = torch.tensor([[[1.0, 10.0], [2.0, 20.0], [5.0, 50.0]]])
    context, alpha = attend(DotScore(2, 2), query, memory, memory, padding(torch.tensor([2]), 3))
    assert alpha[0, 0].tolist() == pytest.approx([1 / 3, 2 / 3, 0.0])
    assert context[0, 0].tolist() == pytest.approx([5 / 3, 50 / 3])


@pytest.mark.parametrize("kind", SCORES)
def test_weights_sum_to_one_over_the_unpadded_source(kind):
    torch.manual_seed(0)
    score, memory, lengths = SCORES[kind](4, 4), torch.randn(3, 5, 4), torch.tensor([5, 1, 3])
    _, alpha = attend(score, torch.randn(3, 2, 4), score.keys(memory), memory, padding(lengths, 5))
    for row, n in enumerate(lengths.tolist()):
        torch.testing.assert_close(alpha[row, :, :n].sum(-1), torch.ones(2))
        assert not alpha[row, :, n:].any()


@pytest.mark.parametrize("kind", SCORES)
def test_the_order_of_the_source_does_not_matter(kind):
    torch.manual_seed(0)
    score, memory, query = SCORES[kind](4, 4), torch.randn(2, 5, 4), torch.randn(2, 1, 4)
    context, _ = attend(score, query, score.keys(memory), memory, None)
    shuffled = memory[:, [3, 0, 4, 1, 2]]
    again, _ = attend(score, query, score.keys(shuffled), shuffled, None)
    torch.testing.assert_close(context, again)
