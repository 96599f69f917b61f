import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from transformers.generation.logits_process import NoRepeatNGramLogitsProcessor

from unspool.decode.hypothesis import Hypothesis
from unspool.decode.transforms import NoRepeatNgram
from unspool.interfaces import Step

SCORES = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()


def banned(rule, path):
    return (rule(SCORES, Step(SCORES), [path]) == -math.inf)[0].nonzero()[:, 0].tolist()


def test_by_hand():
    path = Hypothesis(0, 0, (0, 1), (2, 0, 1, 3, 0, 1))
    assert banned(NoRepeatNgram(3), path) == [2, 3]
    assert banned(NoRepeatNgram(3, prompt=False), path) == [3]
    assert banned(NoRepeatNgram(4), path) == []
    assert banned(NoRepeatNgram(2), path) == [2, 3]


def test_one_lets_every_token_occur_once():
    assert banned(NoRepeatNgram(1), Hypothesis(0, 0, (), (3, 1))) == [1, 3]
    assert banned(NoRepeatNgram(1), Hypothesis(0, 0, ())) == []


def test_where_all_that_was_left_is_banned_the_ban_wins():
    left = torch.tensor([[0.0, -math.inf, -math.inf, -math.inf]])
    out = NoRepeatNgram(1)(left, Step(SCORES), [Hypothesis(0, 0, (), (0, 1))])
    assert out.tolist() == [[-math.inf, -math.inf, 0.0, -math.inf]]


def test_a_ban_on_every_token_is_lifted():
    assert banned(NoRepeatNgram(1), Hypothesis(0, 0, (), (0, 1, 2, 3))) == []


@settings(deadline=None, max_examples=150)
@given(data=st.data(), n=st.integers(1, 4), length=st.integers(0, 12))
def test_the_banned_set_is_that_of_hugging_face(data, n, length):
    ids = data.draw(
        st.lists(st.lists(st.integers(0, 3), min_size=length, max_size=length), min_size=2, max_size=3)
    )
    scores = SCORES.expand(len(ids), 4)
    theirs = NoRepeatNGramLogitsProcessor(n)(torch.tensor(ids, dtype=torch.long).view(len(ids), -1), scores)
    ours = NoRepeatNgram(n)(
        scores, Step(scores), [Hypothesis(0, 0, tuple(row[:3]), tuple(row[3:])) for row in ids]
    )
    possible = (theirs > -math.inf).any(dim=-1)
    assert torch.equal(ours[possible], theirs[possible])
    assert torch.equal(ours[~possible], scores[~possible])


@pytest.mark.parametrize(("n", "error"), [(0, ValueError), (2.5, TypeError)])
def test_impossible_n_is_refused(n, error):
    with pytest.raises(error, match=r"NoRepeatNgram\.n is"):
        NoRepeatNgram(n)
