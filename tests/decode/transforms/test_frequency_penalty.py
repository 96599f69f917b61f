import math

import pytest
import torch
from hypothesis import given, settings, strategies as st

from unspool.decode.hypothesis import Hypothesis
from unspool.decode.transforms import FrequencyPenalty
from unspool.interfaces import Step

SCORES = torch.tensor([[-1.0, -2.0, -3.0]])
PATH = Hypothesis(0, 0, (2,), (0, 0, 0))


def test_by_hand():
    assert FrequencyPenalty(0.5)(SCORES, Step(SCORES), [PATH]).tolist() == [[-2.5, -2.0, -3.0]]
    assert FrequencyPenalty(0.5, prompt=True)(SCORES, Step(SCORES), [PATH]).tolist() == [[-2.5, -2.0, -3.5]]


def test_zero_is_the_identity():
    assert torch.equal(FrequencyPenalty(0)(SCORES, Step(SCORES), [PATH]), SCORES)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.integers(0, 2), max_size=6), min_size=1, max_size=4), st.floats(-2, 2, width=32))
def test_every_row_is_charged_for_each_of_its_tokens(rows, penalty):
    scores = SCORES.expand(len(rows), 3)
    out = FrequencyPenalty(penalty)(scores, Step(scores), [Hypothesis(0, 0, (), tuple(row)) for row in rows])
    for row, tokens in enumerate(rows):
        wanted = [score - penalty * tokens.count(token) for token, score in enumerate(SCORES[0].tolist())]
        assert out[row].tolist() == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize("penalty", [math.nan, math.inf, -1e10])
def test_impossible_penalties_are_refused(penalty):
    with pytest.raises(ValueError, match=r"FrequencyPenalty\.penalty is"):
        FrequencyPenalty(penalty)
