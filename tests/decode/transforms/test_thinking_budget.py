import math

import pytest
import torch

import unspool as us
from unspool.decode.hypothesis import Hypothesis
from unspool.decode.transforms import ThinkingBudget
from unspool.interfaces import Step
from unspool.testing import TableModel

OPEN, CLOSE = 1, 2
SCORES = torch.tensor([[-1.0, -2.0, -math.inf, -3.0]])


def after(rule, prompt=(), tokens=()):
    return rule(SCORES, Step(SCORES), [Hypothesis(0, 0, prompt, tokens)])[0].tolist()


FORCED = [-math.inf, -math.inf, 0.0, -math.inf]
UNCHANGED = SCORES[0].tolist()


def test_the_closing_mark_is_forced_after_n_tokens():
    rule = ThinkingBudget(2, close=(CLOSE,), open=(OPEN,))
    assert after(rule, (OPEN,), (0,)) == UNCHANGED
    assert after(rule, (OPEN,), (0, 0)) == FORCED
    assert after(rule, (3,), (OPEN, 0)) == UNCHANGED
    assert after(rule, (3,), (OPEN, 0, 0)) == FORCED
    assert after(rule, (OPEN, 0), (0,)) == FORCED  # tokens of the prompt after the mark count


def test_text_outside_the_marks_is_unchanged():
    rule = ThinkingBudget(0, close=(CLOSE,), open=(OPEN,))
    assert after(rule, (0, 3), (0, 0, 0)) == UNCHANGED
    assert after(rule, (OPEN, 0, CLOSE), (0, 0, 0)) == UNCHANGED
    assert after(rule, (OPEN,), (0, CLOSE, 0, 0)) == UNCHANGED
    assert after(rule, (OPEN, 0, CLOSE, OPEN)) == FORCED


def test_a_mark_of_several_tokens_continues_where_the_text_ends():
    rule = ThinkingBudget(1, close=(3, 0, CLOSE), open=(OPEN, 0))
    assert after(rule, (OPEN, 0), (0,)) == [-math.inf, -math.inf, -math.inf, 0.0]
    assert after(rule, (OPEN, 0), (0, 3)) == [0.0, -math.inf, -math.inf, -math.inf]
    assert after(rule, (OPEN, 0), (3,)) == [0.0, -math.inf, -math.inf, -math.inf]  # begun before the limit
    assert after(rule, (OPEN, 0), (0, 3, 0)) == FORCED
    assert after(rule, (OPEN, 0), (0, 3, 0, CLOSE)) == UNCHANGED


def test_the_soft_limit_adds_a_bias():
    rule = ThinkingBudget(3, close=(0,), open=(OPEN,), soft=1, bias=2.5)
    assert after(rule, (OPEN,)) == UNCHANGED
    assert after(rule, (OPEN,), (3,)) == [1.5, *UNCHANGED[1:]]
    assert after(rule, (OPEN,), (3, 3, 3)) == [0.0, -math.inf, -math.inf, -math.inf]


def test_rows_are_limited_on_their_own():
    rule = ThinkingBudget(1, close=(CLOSE,), open=(OPEN,))
    history = [Hypothesis(0, 0, (OPEN,)), Hypothesis(0, 1, (OPEN,), (0,)), Hypothesis(0, 2, (0,))]
    out = rule(SCORES.expand(3, -1), Step(SCORES.expand(3, -1)), history)
    assert out.tolist() == [UNCHANGED, FORCED, UNCHANGED]


@pytest.mark.parametrize("decoder", [us.Greedy, us.Sample, lambda rule: us.Beam(2, rule)])
def test_every_decoder_closes_the_reasoning(decoder):
    model = TableModel(lambda _: [0.9, 0.0, 0.0, 0.1])  # it never closes its reasoning
    rule = ThinkingBudget(4, close=(CLOSE,), open=(OPEN,))
    tokens = us.generate(model, [OPEN], decoder(rule), max_new_tokens=8, seed=1).tokens
    assert tokens.index(CLOSE) == 4
    assert tokens.count(CLOSE) == 1


def test_marks_are_encoded_by_the_tokenizer():
    model = us.load("bible")
    limit = us.ThinkingBudget(3, close=" so be it.", open=" Behold")
    text = us.generate(model, "And he said, Behold", us.Greedy(limit), max_new_tokens=30).text
    before, mark, _ = text.partition(" so be it.")
    assert mark
    assert len(model.tokenizer.encode(before)) <= 4  # 3, and BOS
    assert us.parse(repr(us.Greedy(limit))) == us.Greedy(limit)


@pytest.mark.parametrize(
    "wrong", [{"n": -1}, {"n": 1, "close": ""}, {"n": 1, "soft": -1}, {"n": 1, "bias": -1}]
)
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(ValueError, match="ThinkingBudget"):
        ThinkingBudget(**wrong)


def test_unencoded_marks_and_unknown_ids_are_refused():
    with pytest.raises(ValueError, match="tokenizer"):
        after(ThinkingBudget(1))
    with pytest.raises(ValueError, match=r"holds the token ids \[9\]"):
        after(ThinkingBudget(1, close=(9,), open=(OPEN,)))
