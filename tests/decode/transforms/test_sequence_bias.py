import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from transformers.generation.logits_process import SequenceBiasLogitsProcessor

from unspool.decode.hypothesis import Hypothesis
from unspool.decode.transforms import SequenceBias
from unspool.interfaces import Step

SCORES = torch.tensor([[-1.0, -2.0, -3.0, -4.0]])


def test_by_hand():
    rule = SequenceBias({(0,): 1.0, (3, 0): 0.5, (2, 3, 1): -5.0})
    assert rule(SCORES, Step(SCORES), [Hypothesis(0, 0, ())]).tolist() == [[0.0, -2.0, -3.0, -4.0]]
    assert rule(SCORES, Step(SCORES), [Hypothesis(0, 0, (2,), (3,))]).tolist() == [[0.5, -7.0, -3.0, -4.0]]


def test_it_is_a_value_however_it_was_written():
    rule = SequenceBias({(3, 0): 0.5, (0,): 1})
    assert rule == SequenceBias([([0], 1.0), ([3, 0], 0.5)])
    assert hash(rule) == hash(SequenceBias([([0], 1.0), ([3, 0], 0.5)]))
    assert rule.bias == (((0,), 1.0), ((3, 0), 0.5))


tables = st.dictionaries(
    st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple),
    st.integers(-40, 40).map(lambda eighths: eighths / 8),
    min_size=1,
    max_size=6,
)


@settings(deadline=None, max_examples=100)
@given(tables, st.lists(st.lists(st.integers(0, 3), min_size=4, max_size=4), min_size=1, max_size=3))
def test_the_scores_are_those_of_hugging_face(table, ids):
    scores = SCORES.expand(len(ids), 4)
    theirs = SequenceBiasLogitsProcessor([[list(key), bias] for key, bias in table.items()])(
        torch.tensor(ids), scores
    )
    ours = SequenceBias(table)(
        scores, Step(scores), [Hypothesis(0, 0, tuple(row[:1]), tuple(row[1:])) for row in ids]
    )
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("bias", [{}, {(): 1.0}, {(0,): -math.inf}, {(0,): math.nan}])
def test_impossible_biases_are_refused(bias):
    with pytest.raises(ValueError, match=r"SequenceBias\.bias"):
        SequenceBias(bias)


def test_tokens_beyond_the_vocabulary_are_refused():
    with pytest.raises(ValueError, match=r"SequenceBias\.bias holds the token ids \[4\]"):
        SequenceBias({(0, 4): 1.0})(SCORES, Step(SCORES), [Hypothesis(0, 0, ())])
