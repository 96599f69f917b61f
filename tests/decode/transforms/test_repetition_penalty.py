import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from transformers.generation.logits_process import RepetitionPenaltyLogitsProcessor

from unspool.decode.hypothesis import Hypothesis
from unspool.decode.transforms import RepetitionPenalty
from unspool.interfaces import Step


def test_by_hand():
    scores = torch.tensor([[0.5, 0.25, 0.25]]).log()
    out = RepetitionPenalty(2.0)(scores, Step(scores), [Hypothesis(0, 0, (1,), (0, 0))])
    assert out.exp()[0].tolist() == pytest.approx([0.25, 0.0625, 0.25])
    out = RepetitionPenalty(2.0, prompt=False)(scores, Step(scores), [Hypothesis(0, 0, (1,), (0, 0))])
    assert out.exp()[0].tolist() == pytest.approx([0.25, 0.25, 0.25])


def test_one_is_the_identity_and_nothing_comes_alive():
    scores = torch.tensor([[0.0, -math.inf, -2.0]])
    paths = [Hypothesis(0, 0, (0, 1, 2))]
    assert torch.equal(RepetitionPenalty(1.0)(scores, Step(scores), paths), scores)
    assert RepetitionPenalty(5.0)(scores, Step(scores), paths).tolist() == [[0.0, -math.inf, -10.0]]


@settings(deadline=None, max_examples=40)
@given(data=st.data(), penalty=st.floats(0.5, 3))
def test_on_log_probabilities_it_is_hugging_faces(any_scores, data, penalty):
    scores = data.draw(any_scores)
    token = st.integers(0, scores.shape[1] - 1)
    ids = [data.draw(st.lists(token, min_size=5, max_size=5)) for _ in scores]
    history = [Hypothesis(0, 0, tuple(row[:2]), tuple(row[2:])) for row in ids]
    theirs = RepetitionPenaltyLogitsProcessor(penalty)(torch.tensor(ids), scores)
    assert torch.equal(RepetitionPenalty(penalty)(scores, Step(scores), history), theirs)
    theirs = RepetitionPenaltyLogitsProcessor(penalty, prompt_ignore_length=2)(torch.tensor(ids), scores)
    assert torch.equal(RepetitionPenalty(penalty, prompt=False)(scores, Step(scores), history), theirs)


def test_hugging_face_on_raw_logits_depends_on_a_constant_that_means_nothing():
    logits, ids = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[0]])
    theirs = RepetitionPenaltyLogitsProcessor(1.5)
    low, high = theirs(ids, logits).softmax(-1), theirs(ids, logits + 10).softmax(-1)
    assert float(low[0, 0]) == pytest.approx(0.506, abs=1e-3)
    assert float(high[0, 0]) == pytest.approx(0.035, abs=1e-3)
    ours = [
        RepetitionPenalty(1.5)(logp, Step(logp), [Hypothesis(0, 0, (0,))])
        for logp in (logits.log_softmax(-1), (logits + 10).log_softmax(-1))
    ]
    assert torch.allclose(ours[0], ours[1], atol=1e-6)


@pytest.mark.parametrize("penalty", [0, -1, math.nan, math.inf])
def test_impossible_penalties_are_refused(penalty):
    with pytest.raises(ValueError, match=r"RepetitionPenalty\.penalty is .*0 < penalty"):
        RepetitionPenalty(penalty)
