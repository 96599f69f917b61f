import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings, strategies as st

import unspool.decode.transforms as transforms
from unspool.decode.hypothesis import Hypothesis
from unspool.decode.spec import parse
from unspool.decode.transforms import TRANSFORMS
from unspool.decode.transforms.scores import survivors
from unspool.interfaces import Step

EXAMPLES = [
    transforms.AdaptiveP(),
    transforms.BadWords([[0], [1, 2]]),
    transforms.DRY(breakers=(1,)),
    transforms.DynamicTemperature(),
    transforms.Epsilon(),
    transforms.Eta(),
    transforms.ForcedBOS(0),
    transforms.ForcedEOS(3, eos=[0]),
    transforms.FrequencyPenalty(0.5),
    transforms.Grammar(regex="a*"),
    transforms.Kappa(0.5, width=3),
    transforms.LogitBias({0: -100.0}),
    transforms.MinK(),
    transforms.MinLength(2, eos=0),
    transforms.MinP(),
    transforms.Mirostat(),
    transforms.NoRepeatNgram(2),
    transforms.PLess(),
    transforms.PresencePenalty(0.5),
    transforms.QuadraticSmoothing(),
    transforms.RepetitionPenalty(),
    transforms.SequenceBias({(0,): 1.0, (0, 0): -1.5}),
    transforms.TailFree(),
    transforms.Temperature(0.7),
    transforms.ThinkingBudget(1, close=[1], open=[0]),
    transforms.TopA(),
    transforms.TopH(),
    transforms.TopK(1),
    transforms.TopNSigma(),
    transforms.TopP(),
    transforms.Typical(),
    transforms.XTC(),
]
# A grammar is about text, and asks for a model's tokenizer first.
READY = [rule for rule in EXAMPLES if not isinstance(rule, transforms.Grammar)]


def test_survivors_by_hand():
    logp = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()
    assert survivors(transforms.TopP(0.8), logp).tolist() == [True, True, False, False]
    assert survivors(transforms.TopK(1), torch.stack([logp, logp.flip(0)])).tolist() == [
        [True, False, False, False],
        [False, False, False, True],
    ]


def test_survivors_take_scores_up_to_a_constant():
    logits = torch.tensor([[2.0, 1.0, -3.0]])
    assert torch.equal(survivors(transforms.MinP(0.1), logits), survivors(transforms.MinP(0.1), logits - 40))


def test_survivors_of_rules_that_look_back():
    logp = torch.tensor([[0.5, 0.5]]).log()
    rule = transforms.NoRepeatNgram(1)
    assert survivors(rule, logp).tolist() == [[True, True]]
    assert survivors(rule, logp, [Hypothesis(0, 0, (), (1,))]).tolist() == [[True, False]]


def test_broken_scores_are_refused():
    with pytest.raises(ValueError, match="row 0 of the scores holds NaN"):
        survivors(transforms.TopK(1), torch.tensor([math.nan, 0.0]))


def test_the_table_of_transforms_names_every_class():
    assert list(TRANSFORMS) == sorted(TRANSFORMS)
    assert all(name == kind.__name__ for name, kind in TRANSFORMS.items())
    assert {type(rule).__name__ for rule in EXAMPLES} == set(TRANSFORMS)
    assert all(getattr(transforms, name) is kind for name, kind in TRANSFORMS.items())


@pytest.mark.parametrize("rule", EXAMPLES, ids=lambda rule: type(rule).__name__)
def test_a_transform_is_a_value(rule):
    assert hash(rule) == hash(dataclasses.replace(rule))
    assert rule == dataclasses.replace(rule)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(rule, "anything", 1)  # noqa: B010
    assert parse(f"Sample({rule!r})").transforms == (rule,)


def _path(row, V, rng):
    tokens = tuple(rng.randrange(V) for _ in range(rng.randrange(7)))
    drawn = tuple(-9 * rng.random() for _ in tokens)
    prompt = tuple(rng.randrange(V) for _ in range(rng.randrange(4)))
    return Hypothesis(row, 0, prompt, tokens, drawn, drawn)


@pytest.mark.parametrize("rule", READY, ids=lambda rule: type(rule).__name__)
@settings(deadline=None, max_examples=15)
@given(data=st.data())
def test_a_transform_is_pure_and_leaves_a_token_in_every_row(rule, any_scores, data):
    scores = data.draw(any_scores.filter(lambda scores: scores.shape[1] > 2))
    rng = data.draw(st.randoms(use_true_random=False))
    history = [_path(row, scores.shape[1], rng) for row in range(len(scores))]
    before = scores.clone()
    out = rule(scores, Step(scores), history)
    assert torch.equal(scores, before)
    assert out.shape == scores.shape
    assert torch.isfinite(out.amax(dim=-1)).all()
    alone = scores[-1:]
    assert torch.equal(rule(alone, Step(alone), history[-1:]), out[-1:])


@pytest.mark.parametrize("rule", READY, ids=lambda rule: type(rule).__name__)
def test_a_transform_refuses_rows_that_cannot_be_drawn_from(rule):
    scores = torch.tensor([[-0.5, -1.0, -2.0], [0.0, math.nan, -1.0]])
    with pytest.raises(ValueError, match="row 1 of the scores holds NaN"):
        rule(scores, Step(scores), [Hypothesis(0, 0, ())] * 2)
