import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from transformers.generation.logits_process import NoBadWordsLogitsProcessor

from unspool.decode.hypothesis import Hypothesis
from unspool.decode.transforms import BadWords
from unspool.interfaces import Step

SCORES = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()


def banned(rule, path):
    return (rule(SCORES, Step(SCORES), [path]) == -math.inf)[0].nonzero()[:, 0].tolist()


def test_by_hand():
    rule = BadWords([[3], [0, 1], [2, 0, 2]])
    assert banned(rule, Hypothesis(0, 0, ())) == [3]
    assert banned(rule, Hypothesis(0, 0, (0,))) == [1, 3]
    assert banned(rule, Hypothesis(0, 0, (2,), (0,))) == [1, 2, 3]
    assert banned(BadWords([[0, 1]]), Hypothesis(0, 0, (1,))) == []


def test_order_and_repetition_make_no_difference():
    assert BadWords([[3], [0, 1], [3]]) == BadWords(((0, 1), (3,)))
    assert hash(BadWords([[3], [0, 1]])) == hash(BadWords([[0, 1], [3]]))


def test_a_bad_word_does_not_come_back_through_an_earlier_rule():
    left = torch.tensor([[0.0, -math.inf, -math.inf, -math.inf]])
    out = BadWords([[0]])(left, Step(SCORES), [Hypothesis(0, 0, ())])
    assert out.tolist() == [[-math.inf, 0.0, -math.inf, -math.inf]]


words = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3), min_size=1, max_size=6)


@settings(deadline=None, max_examples=150)
@given(words, st.lists(st.lists(st.integers(0, 3), min_size=4, max_size=4), min_size=2, max_size=3))
def test_the_banned_set_is_that_of_hugging_face(sequences, ids):
    scores = SCORES.expand(len(ids), 4)
    theirs = NoBadWordsLogitsProcessor(sequences)(torch.tensor(ids), scores)
    ours = BadWords(sequences)(
        scores, Step(scores), [Hypothesis(0, 0, tuple(row[:2]), tuple(row[2:])) for row in ids]
    )
    possible = (theirs > -math.inf).any(dim=-1)
    assert torch.equal(ours[possible], theirs[possible])
    assert torch.equal(ours[~possible], scores[~possible])


@pytest.mark.parametrize(
    ("sequences", "error"),
    [
        ([], ValueError),
        ([[]], ValueError),
        ([[-1]], ValueError),
        ([""], ValueError),
        ("ab", TypeError),
        ([3], TypeError),
    ],
)
def test_impossible_words_are_refused(sequences, error):
    with pytest.raises(error, match=r"BadWords\.sequences"):
        BadWords(sequences)


def test_words_beyond_the_vocabulary_are_refused():
    with pytest.raises(ValueError, match=r"BadWords\.sequences holds the token ids \[4\], but .* 4 columns"):
        banned(BadWords([[0, 4]]), Hypothesis(0, 0, ()))
