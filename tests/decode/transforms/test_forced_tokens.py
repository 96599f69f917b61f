import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from transformers.generation.logits_process import (
    ForcedBOSTokenLogitsProcessor,
    ForcedEOSTokenLogitsProcessor,
    MinNewTokensLengthLogitsProcessor,
)

from unspool.decode.hypothesis import Hypothesis
from unspool.decode.transforms import ForcedBOS, ForcedEOS, MinLength
from unspool.decode.transforms.forced_tokens import force
from unspool.interfaces import Step

FORCE_INF = math.inf


def test_forced_rows_hold_nothing_else():
    scores = torch.tensor([[-1.0, -2.0, -3.0], [-1.0, -FORCE_INF, -3.0]])
    assert force(scores, [1], (1, 2)).tolist() == [[-1.0, -2.0, -3.0], [-FORCE_INF, 0.0, 0.0]]
    assert scores[1].tolist() == [-1.0, -FORCE_INF, -3.0]


def test_no_row_no_change():
    scores = torch.tensor([[-1.0, -2.0]])
    assert torch.equal(force(scores, [], (0,)), scores)


FORCED_BOS_SCORES = torch.tensor([[-1.0, -math.inf, -3.0]] * 2)
FORCED_BOS_INF = math.inf


def test_forced_bos_by_hand():
    out = ForcedBOS(1)(
        FORCED_BOS_SCORES, Step(FORCED_BOS_SCORES), [Hypothesis(0, 0, (7, 8)), Hypothesis(0, 0, (), (2,))]
    )
    assert out.tolist() == [[-FORCED_BOS_INF, 0.0, -FORCED_BOS_INF], [-1.0, -FORCED_BOS_INF, -3.0]]


def test_after_a_start_token_it_is_hugging_faces():
    for written in range(3):
        theirs = ForcedBOSTokenLogitsProcessor(2)(
            torch.zeros(2, 1 + written).long(), FORCED_BOS_SCORES.clone()
        )
        ours = ForcedBOS(2)(
            FORCED_BOS_SCORES, Step(FORCED_BOS_SCORES), [Hypothesis(0, 0, (0,), (0,) * written)] * 2
        )
        assert torch.equal(ours, theirs)


def test_impossible_tokens_are_refused():
    with pytest.raises(ValueError, match=r"ForcedBOS\.token is -1"):
        ForcedBOS(-1)
    with pytest.raises(ValueError, match=r"ForcedBOS\.token holds the token ids \[3\]"):
        ForcedBOS(3)(FORCED_BOS_SCORES, Step(FORCED_BOS_SCORES), [Hypothesis(0, 0, ())] * 2)


FORCED_EOS_SCORES = torch.tensor([[-1.0, -math.inf, -3.0]] * 2)
FORCED_EOS_INF = math.inf


def test_forced_eos_by_hand():
    out = ForcedEOS(3, eos=1)(
        FORCED_EOS_SCORES,
        Step(FORCED_EOS_SCORES),
        [Hypothesis(0, 0, (9,), (0, 0)), Hypothesis(0, 0, (9, 9), (0,))],
    )
    assert out.tolist() == [[-FORCED_EOS_INF, 0.0, -FORCED_EOS_INF], [-1.0, -FORCED_EOS_INF, -3.0]]
    out = ForcedEOS(1, eos=(0, 1))(FORCED_EOS_SCORES, Step(FORCED_EOS_SCORES), [Hypothesis(0, 0, (9,))] * 2)
    assert out.tolist() == [[0.0, 0.0, -FORCED_EOS_INF]] * 2


def test_without_a_prompt_it_is_hugging_faces():
    for written in range(5):
        theirs = ForcedEOSTokenLogitsProcessor(4, [0, 2])(
            torch.zeros(2, written).long(), FORCED_EOS_SCORES.clone()
        )
        ours = ForcedEOS(4, [0, 2])(
            FORCED_EOS_SCORES, Step(FORCED_EOS_SCORES), [Hypothesis(0, 0, (), (0,) * written)] * 2
        )
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize(("length", "eos"), [(0, 1), (3, ()), (3, -1)])
def test_forced_eos_impossible_arguments_are_refused(length, eos):
    with pytest.raises(ValueError, match=r"ForcedEOS\.(length|eos) is"):
        ForcedEOS(length, eos)


def test_forced_eos_an_end_beyond_the_vocabulary_is_refused():
    with pytest.raises(ValueError, match=r"ForcedEOS\.eos holds the token ids \[3\]"):
        ForcedEOS(1, 3)(FORCED_EOS_SCORES, Step(FORCED_EOS_SCORES), [Hypothesis(0, 0, ())] * 2)


MIN_LENGTH_SCORES = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()


def banned(rule, path):
    return (rule(MIN_LENGTH_SCORES, Step(MIN_LENGTH_SCORES), [path]) == -math.inf)[0].nonzero()[:, 0].tolist()


def test_min_length_by_hand():
    assert banned(MinLength(2, eos=0), Hypothesis(0, 0, (1, 1, 1))) == [0]
    assert banned(MinLength(2, eos=0), Hypothesis(0, 0, (), (1,))) == [0]
    assert banned(MinLength(2, eos=0), Hypothesis(0, 0, (), (1, 1))) == []
    assert banned(MinLength(9, eos=[0, 2]), Hypothesis(0, 0, (), (1, 1))) == [0, 2]


def test_zero_is_the_identity():
    assert banned(MinLength(0, eos=0), Hypothesis(0, 0, ())) == []


def test_a_text_of_nothing_but_an_end_goes_on():
    left = torch.tensor([[-math.inf, 0.0, -math.inf, -math.inf]])
    out = MinLength(1, eos=1)(left, Step(MIN_LENGTH_SCORES), [Hypothesis(0, 0, ())])
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
        torch.zeros(1, prompt + written).long(), MIN_LENGTH_SCORES
    )
    ours = MinLength(n, eos)(
        MIN_LENGTH_SCORES, Step(MIN_LENGTH_SCORES), [Hypothesis(0, 0, (0,) * prompt, (0,) * written)]
    )
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize(("n", "eos"), [(-1, 0), (1, ()), (1, -1)])
def test_min_length_impossible_arguments_are_refused(n, eos):
    with pytest.raises(ValueError, match=r"MinLength\.(n|eos) is"):
        MinLength(n, eos)


def test_min_length_an_end_beyond_the_vocabulary_is_refused():
    with pytest.raises(ValueError, match=r"MinLength\.eos holds the token ids \[4\]"):
        banned(MinLength(1, eos=4), Hypothesis(0, 0, ()))
