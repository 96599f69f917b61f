import itertools
import math

import pytest
import torch
from transformers.generation.logits_process import TopKLogitsWarper

from unspool.decode.transforms import TopK

P = torch.tensor([[0.1, 0.4, 0.2, 0.25, 0.05]]).log()


def test_by_hand():
    assert TopK(1).keeps(P).tolist() == [[False, True, False, False, False]]
    assert TopK(3).keeps(P).tolist() == [[False, True, True, True, False]]


def test_all_that_tie_with_the_last_stay():
    ties = torch.tensor([[0.25, 0.25, 0.4, 0.1]]).log()
    assert TopK(2).keeps(ties).tolist() == [[True, True, True, False]]


def test_as_many_as_there_are_is_the_identity():
    assert TopK(5).keeps(P).all()


def test_more_than_there_are_is_refused_with_both_numbers():
    with pytest.raises(ValueError, match=r"TopK\.k is 6, but the vocabulary has 5 tokens\. Choose k ≤ 5"):
        TopK(6).keeps(P)


def test_cut_tokens_stay_cut():
    assert TopK(3).keeps(torch.tensor([[0.0, -math.inf, -math.inf]])).tolist() == [[True, False, False]]


def test_a_larger_k_keeps_more(matrices):
    for scores in matrices.values():
        ks = [k for k in (1, 2, 7, 50, 300) if k <= scores.shape[1]]
        kept = [TopK(k).keeps(scores) for k in ks]
        for fewer, more in itertools.pairwise(kept):
            assert (fewer <= more).all()


def test_the_kept_set_is_that_of_hugging_face(matrices):
    for scores in matrices.values():
        for k in (1, 2, 7, 50, 300):
            if k <= scores.shape[1]:
                theirs = TopKLogitsWarper(k)(None, scores) > -math.inf
                assert torch.equal(TopK(k).keeps(scores), theirs)


@pytest.mark.parametrize(
    ("k", "error"), [(0, ValueError), (-3, ValueError), (2.5, TypeError), (None, TypeError)]
)
def test_impossible_k_is_refused(k, error):
    with pytest.raises(error, match=r"TopK\.k is .* whole number ≥ 1"):
        TopK(k)
