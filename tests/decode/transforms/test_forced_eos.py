import math

import pytest
import torch
from transformers.generation.logits_process import ForcedEOSTokenLogitsProcessor

from unspool.decode.hypothesis import Hypothesis
from unspool.decode.transforms import ForcedEOS
from unspool.interfaces import Step

SCORES = torch.tensor([[-1.0, -math.inf, -3.0]] * 2)
INF = math.inf


def test_by_hand():
    out = ForcedEOS(3, eos=1)(
        SCORES, Step(SCORES), [Hypothesis(0, 0, (9,), (0, 0)), Hypothesis(0, 0, (9, 9), (0,))]
    )
    assert out.tolist() == [[-INF, 0.0, -INF], [-1.0, -INF, -3.0]]
    out = ForcedEOS(1, eos=(0, 1))(SCORES, Step(SCORES), [Hypothesis(0, 0, (9,))] * 2)
    assert out.tolist() == [[0.0, 0.0, -INF]] * 2


def test_without_a_prompt_it_is_hugging_faces():
    for written in range(5):
        theirs = ForcedEOSTokenLogitsProcessor(4, [0, 2])(torch.zeros(2, written).long(), SCORES.clone())
        ours = ForcedEOS(4, [0, 2])(SCORES, Step(SCORES), [Hypothesis(0, 0, (), (0,) * written)] * 2)
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize(("length", "eos"), [(0, 1), (3, ()), (3, -1)])
def test_impossible_arguments_are_refused(length, eos):
    with pytest.raises(ValueError, match=r"ForcedEOS\.(length|eos) is"):
        ForcedEOS(length, eos)


def test_an_end_beyond_the_vocabulary_is_refused():
    with pytest.raises(ValueError, match=r"ForcedEOS\.eos holds the token ids \[3\]"):
        ForcedEOS(1, 3)(SCORES, Step(SCORES), [Hypothesis(0, 0, ())] * 2)
