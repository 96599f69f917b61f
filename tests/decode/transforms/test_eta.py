import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from transformers.generation.logits_process import EtaLogitsWarper

from unspool.decode.transforms import Eta


def test_by_hand():
    # H = 1.1094 nats, e^(−H) = 0.3298.
    p = torch.tensor([[0.5, 0.25, 0.23, 0.02]]).log()
    # η = 0.04: min(0.04, 0.2 · 0.3298 = 0.066).
    assert Eta(0.04).keeps(p).tolist() == [[True, True, True, False]]
    # η = 0.5: min(0.5, 0.7071 · 0.3298 = 0.2332). Were e^(−H) under the root: 0.406, and only the best stays.
    assert Eta(0.5).keeps(p).tolist() == [[True, True, False, False]]


def test_the_best_stays_with_all_its_ties():
    # Uniform over 4: √1 · e^(−ln 4) = ¼ at η = 1, no less than any token: all are kept.
    assert Eta(1).keeps(torch.zeros(1, 4)).all()
    assert Eta(1).keeps(torch.tensor([[0.3, 0.4, 0.3]]).log()).tolist() == [[False, True, False]]


def test_zero_keeps_everything():
    assert Eta(0).keeps(torch.tensor([[0.0, -1e4, -math.inf]])).tolist() == [[True, True, False]]


@settings(deadline=None, max_examples=30)
@given(data=st.data(), e=st.floats(0, 1), f=st.floats(0, 1))
def test_a_larger_eta_keeps_less(any_scores, data, e, f):
    scores = data.draw(any_scores)
    assert (Eta(max(e, f)).keeps(scores) <= Eta(min(e, f)).keeps(scores)).all()


@pytest.mark.parametrize("eta", [1e-7, 9e-4, 0.05, 0.5])
def test_the_kept_set_is_that_of_hugging_face(matrices, eta):
    for name, scores in matrices.items():
        theirs = EtaLogitsWarper(eta)(None, scores) > -math.inf
        assert torch.equal(Eta(eta).keeps(scores), theirs), name


@pytest.mark.parametrize("eta", [-1e-9, 1.5, math.nan])
def test_impossible_eta_is_refused(eta):
    with pytest.raises(ValueError, match=r"Eta\.eta is .*0 ≤ eta ≤ 1"):
        Eta(eta)
