import math

import pytest
import torch
from hypothesis import given, settings, strategies as st

import unspool.decode.transforms as transforms
from unspool.decode.hypothesis import Hypothesis
from unspool.decode.transforms import Truncation
from unspool.interfaces import Step

RULES = [
    transforms.Epsilon(),
    transforms.Epsilon(0.3),
    transforms.Eta(),
    transforms.Eta(0.5),
    transforms.Kappa(0.3, width=2),
    transforms.Kappa(2.0, width=5),
    transforms.MinK(),
    transforms.MinK(40.0),
    transforms.MinP(),
    transforms.MinP(0.9),
    transforms.PLess(),
    transforms.PLess(norm=True),
    transforms.TailFree(),
    transforms.TailFree(0.3),
    transforms.TopA(),
    transforms.TopH(),
    transforms.TopH(0.9),
    transforms.TopK(1),
    transforms.TopNSigma(),
    transforms.TopNSigma(0.2),
    transforms.TopP(),
    transforms.TopP(0.3),
    transforms.Typical(),
    transforms.Typical(0.2),
]


def test_every_truncation_is_tried():
    kinds = {kind for kind in transforms.TRANSFORMS.values() if issubclass(kind, Truncation)}
    assert kinds == {type(rule) for rule in RULES}


@pytest.mark.parametrize("rule", RULES, ids=repr)
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_a_truncation_keeps_some_living_tokens_as_they_are(rule, any_scores, data):
    scores = data.draw(any_scores)
    before = scores.clone()
    keep = rule.keeps(scores)
    assert keep.any(dim=-1).all()
    assert not keep[scores == -math.inf].any()
    out = rule(scores, Step(scores), [Hypothesis(0, 0, ())] * len(scores))
    assert torch.equal(out, torch.where(keep, scores, -math.inf))
    assert torch.equal(scores, before)
    assert torch.equal(rule.keeps(scores[-1:]), keep[-1:])


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_large_rows_are_cut_the_same_alone(rule, matrices):
    for name in ("600 ties", "5000 plain", "50000 cut"):
        scores = matrices[name][:10]
        keep = rule.keeps(scores)
        assert keep.any(dim=-1).all()
        for row in range(0, len(scores), 4):
            assert torch.equal(rule.keeps(scores[row : row + 1]), keep[row : row + 1])


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_every_precision_is_served(rule, dtype):
    scores = torch.tensor([[0.6, 0.3, 0.1, 0.0]]).log().to(dtype)
    out = rule(scores, Step(scores), [Hypothesis(0, 0, ())])
    assert out.dtype == dtype
    keep = rule.keeps(scores)
    assert keep.any()
    assert torch.equal(out, torch.where(keep, scores, -math.inf))


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_broken_scores_are_refused(rule):
    for row, message in (
        ([math.nan, 0.0], "row 1 .* NaN"),
        ([-math.inf, -math.inf], "row 1 .* −∞ only"),
    ):
        scores = torch.tensor([[-0.5, -1.0], row])
        with pytest.raises(ValueError, match=message):
            rule(scores, Step(scores), [Hypothesis(0, 0, ())] * 2)
