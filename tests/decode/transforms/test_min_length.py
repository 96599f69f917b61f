import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from transformers.generation.logits_process import MinNewTokensLengthLogitsProcessor

from unspool.decode.hypothesis import Hypothesis
from unspool.decode.transforms import MinLength
from unspool.interfaces import Step

SCORES = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()


def banned(rule, path):
    return (rule(SCORES, Step(SCORES), [path]) == -math.inf)[0].nonzero()[:, 0].tolist()


def test_by_hand():
    assert banned(MinLength(2, eos=0), Hypothesis(0, 0, (1, 1, 1))) == [0]
    assert banned(MinLength(2, eos=0), Hypothesis(0, 0, (), (1,))) == [0]
    assert banned(MinLength(2, eos=0), Hypothesis(0, 0, (), (1, 1))) == []
    assert banned(MinLength(9, eos=[0, 2]), Hypothesis(0, 0, (), (1, 1))) == [0, 2]


def test_zero_is_the_identity():
    assert banned(MinLength(0, eos=0), Hypothesis(0, 0, ())) == []


def test_a_text_of_nothing_but_an_end_goes_on():
    left = torch.tensor([[-math.inf, 0.0, -math.inf, -math.inf]])
    out = MinLength(1, eos=1)(left, Step(SCORES), [Hypothesis(0, 0, ())])
    assert out.tolist() == [[0.0, -math.inf, -math.inf, -math.inf]]


@settings(deadline=None, max_examples=50)
@given(
    st.integers(0, 4),
    st.integers(0, 4),
    st.integers(0, 5),
    st.sets(st.integers(0, 3), min_size=1, max_size=3),
)
def test_the_banned_set_is_that_of_hugging_face(prompt, written, n, eos):
    theirs = MinNewTokensLengthLogitsProcessor(prompt, n, sorted(eos))(
        torch.zeros(1, prompt + written).long(), SCORES
    )
    ours = MinLength(n, eos)(SCORES, Step(SCORES), [Hypothesis(0, 0, (0,) * prompt, (0,) * written)])
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize(("n", "eos"), [(-1, 0), (1, ()), (1, -1)])
def test_impossible_arguments_are_refused(n, eos):
    with pytest.raises(ValueError, match=r"MinLength\.(n|eos) is"):
        MinLength(n, eos)


def test_an_end_beyond_the_vocabulary_is_refused():
    with pytest.raises(ValueError, match=r"MinLength\.eos holds the token ids \[4\]"):
        banned(MinLength(1, eos=4), Hypothesis(0, 0, ()))
