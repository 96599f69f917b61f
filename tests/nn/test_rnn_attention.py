import math

import pytest
import torch

from unspool.nn.rnn import (
    ATTENTION_SCORES,
    AdditiveScore,
    BilinearScore,
    DotScore,
    attend,
    last_context,
    mean_context,
    padding_mask,
)

MEMORY = torch.tensor([[[1.0, 2.0], [3.0, 4.0], [9.0, 9.0]], [[5.0, 6.0], [7.0, 8.0], [0.0, 1.0]]])
LENGTHS = torch.tensor([2, 3])


def test_last_is_each_directions_own_end():
    assert last_context(MEMORY, LENGTHS, False).tolist() == [[3.0, 4.0], [0.0, 1.0]]
    assert last_context(MEMORY, LENGTHS, True).tolist() == [[3.0, 2.0], [0.0, 6.0]]


def test_mean_leaves_padding_out():
    assert mean_context(MEMORY, LENGTHS).tolist() == [[2.0, 3.0], [4.0, 5.0]]


def test_padding_is_cut_and_nothing_is_added_where_there_is_none():
    assert padding_mask(LENGTHS, 3).tolist() == [[0.0, 0.0, -math.inf], [0.0, 0.0, 0.0]]
    assert padding_mask(torch.tensor([3, 3]), 3) is None


def test_attention_by_hand():
    query = torch.tensor([[[math.log(2.0), 0.0]]])
    memory = torch.tensor([[[1.0, 10.0], [2.0, 20.0], [5.0, 50.0]]])
    context, alpha = attend(DotScore(2, 2), query, memory, memory, padding_mask(torch.tensor([2]), 3))
    assert alpha[0, 0].tolist() == pytest.approx([1 / 3, 2 / 3, 0.0])
    assert context[0, 0].tolist() == pytest.approx([5 / 3, 50 / 3])


@pytest.mark.parametrize("kind", ATTENTION_SCORES)
def test_weights_sum_to_one_over_the_unpadded_source(kind):
    torch.manual_seed(0)
    score, memory, lengths = ATTENTION_SCORES[kind](4, 4), torch.randn(3, 5, 4), torch.tensor([5, 1, 3])
    _, alpha = attend(score, torch.randn(3, 2, 4), score.keys(memory), memory, padding_mask(lengths, 5))
    for row, n in enumerate(lengths.tolist()):
        torch.testing.assert_close(alpha[row, :, :n].sum(-1), torch.ones(2))
        assert not alpha[row, :, n:].any()


@pytest.mark.parametrize("kind", ATTENTION_SCORES)
def test_the_order_of_the_source_does_not_matter(kind):
    torch.manual_seed(0)
    score, memory, query = ATTENTION_SCORES[kind](4, 4), torch.randn(2, 5, 4), torch.randn(2, 1, 4)
    context, _ = attend(score, query, score.keys(memory), memory, None)
    shuffled = memory[:, [3, 0, 4, 1, 2]]
    again, _ = attend(score, query, score.keys(shuffled), shuffled, None)
    torch.testing.assert_close(context, again)


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


def test_bilinear_score_by_hand():
    score = BilinearScore(1, 2)
    with torch.no_grad():
        score.key.weight.copy_(torch.tensor([[2.0, -1.0]]))
    memory = torch.tensor([[[1.0, 2.0], [0.0, -1.0]]])
    assert score(torch.tensor([[[3.0]]]), score.keys(memory)).tolist() == [[[0.0, 3.0]]]


def test_with_the_identity_it_is_the_inner_product():
    score = BilinearScore(3, 3)
    with torch.no_grad():
        score.key.weight.copy_(torch.eye(3))
    query, memory = torch.randn(2, 4, 3), torch.randn(2, 5, 3)
    torch.testing.assert_close(score(query, score.keys(memory)), DotScore(3, 3)(query, memory))


def test_dot_score_by_hand():
    score = DotScore(2, 2)
    memory = torch.tensor([[[1.0, 2.0], [0.0, -1.0], [3.0, 0.5]]])
    assert score(torch.tensor([[[2.0, 1.0]]]), score.keys(memory)).tolist() == [[[4.0, -1.0, 6.5]]]


def test_it_owns_no_weights():
    assert list(DotScore(3, 3).parameters()) == []
