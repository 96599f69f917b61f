import math

import pytest
import torch
from transformers.generation.logits_process import ForcedBOSTokenLogitsProcessor

from unspool.decode.hypothesis import Hypothesis
from unspool.decode.transforms import ForcedBOS
from unspool.interfaces import Step

SCORES = torch.tensor([[-1.0, -math.inf, -3.0]] * 2)
INF = math.inf


def test_by_hand():
    out = ForcedBOS(1)(SCORES, Step(SCORES), [Hypothesis(0, 0, (7, 8)), Hypothesis(0, 0, (), (2,))])
    assert out.tolist() == [[-INF, 0.0, -INF], [-1.0, -INF, -3.0]]


def test_after_a_start_token_it_is_hugging_faces():
    for written in range(3):
        theirs = ForcedBOSTokenLogitsProcessor(2)(torch.zeros(2, 1 + written).long(), SCORES.clone())
        ours = ForcedBOS(2)(SCORES, Step(SCORES), [Hypothesis(0, 0, (0,), (0,) * written)] * 2)
        assert torch.equal(ours, theirs)


def test_impossible_tokens_are_refused():
    with pytest.raises(ValueError, match=r"ForcedBOS\.token is -1"):
        ForcedBOS(-1)
    with pytest.raises(ValueError, match=r"ForcedBOS\.token holds the token ids \[3\]"):
        ForcedBOS(3)(SCORES, Step(SCORES), [Hypothesis(0, 0, ())] * 2)
