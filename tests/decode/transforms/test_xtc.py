import math
import statistics

import pytest
import torch
from hypothesis import given, settings, strategies as st

from unspool.decode.generate import generate
from unspool.decode.hypothesis import Hypothesis
from unspool.decode.search import Sample
from unspool.decode.transforms import XTC
from unspool.interfaces import Step
from unspool.testing import TableModel

START = Hypothesis(0, 0, ())


def kept(rule, p, path=START):
    logp = torch.tensor([p]).log()
    return (rule(logp, Step(logp), [path]) > -math.inf)[0].nonzero()[:, 0].tolist()


def test_by_hand():
    always = XTC(threshold=0.1, probability=1)
    assert kept(always, [0.5, 0.25, 0.15, 0.1 - 1e-3, 1e-3]) == [2, 3, 4]
    assert kept(always, [0.9, 0.05, 0.05]) == [0, 1, 2]
    assert kept(XTC(threshold=0.2, probability=1), [0.5, 0.25, 0.15, 0.1]) == [1, 2, 3]


def test_all_that_tie_for_the_least_probable_stay():
    assert kept(XTC(probability=1), [0.4, 0.25, 0.25, 0.1 - 1e-6]) == [1, 2, 3]


def test_a_spared_token_saves_the_row():
    p = [0.5, 0.3, 0.2]
    assert kept(XTC(probability=1, spare=(1,)), p) == [0, 1, 2]
    assert kept(XTC(probability=1, spare=(2,)), p) == [2]


def test_never_and_thresholds_above_one_half_change_nothing():
    assert kept(XTC(probability=0), [0.5, 0.5]) == [0, 1]
    assert kept(XTC(threshold=0.51, probability=1), [0.49, 0.51]) == [0, 1]


def test_the_coin_is_fair_and_belongs_to_the_path():
    paths = [
        Hypothesis(0, sample, (7,), tokens)
        for sample in range(20)
        for tokens in [(t,) * n for t in range(5) for n in range(20)]
    ]
    draws = [XTC().draw_uniform(path) for path in {(p.sample, p.tokens): p for p in paths}.values()]
    assert len(set(draws)) == len(draws)
    assert all(0 <= coin < 1 for coin in draws)
    # The mean of n uniform numbers strays by 0.29/√n: four times that is 0.027 here.
    assert statistics.mean(draws) == pytest.approx(0.5, abs=4 * 0.29 / math.sqrt(len(draws)))
    path = Hypothesis(3, 1, (7,), (1, 2))
    assert XTC().draw_uniform(path) == XTC().draw_uniform(Hypothesis(0, 1, (7,), (1, 2), logps=(-1.0, -2.0)))
    others = [Hypothesis(3, 0, (7,), (1, 2)), Hypothesis(3, 1, (7, 1), (2,)), Hypothesis(3, 1, (7,), (2, 1))]
    assert XTC().draw_uniform(path) not in [XTC().draw_uniform(other) for other in others]


@settings(deadline=None, max_examples=40)
@given(data=st.data(), threshold=st.floats(0.01, 1))
def test_only_likely_tokens_go_and_one_of_them_stays(any_scores, data, threshold):
    scores = data.draw(any_scores)
    out = XTC(threshold, 1.0)(scores, Step(scores), [START] * len(scores))
    likely = scores.softmax(dim=-1) >= threshold
    gone = (out == -math.inf) & (scores > -math.inf)
    assert not (gone & ~likely).any()
    assert (likely & ~gone).any(dim=-1)[likely.any(dim=-1)].all()
    assert (gone.any(dim=-1) <= (likely.sum(dim=-1) >= 2)).all()


@pytest.mark.parametrize("arguments", [{"threshold": 0}, {"threshold": 1.1}, {"probability": -0.1}])
def test_impossible_arguments_are_refused(arguments):
    with pytest.raises(ValueError, match=r"XTC\.\w+ is"):
        XTC(**arguments)


def test_a_spared_token_must_exist():
    with pytest.raises(ValueError, match=r"XTC\.spare holds the token ids \[3\]"):
        kept(XTC(spare=(3,)), [0.5, 0.5])


def test_the_coin_is_the_requests():
    """The seed of a request moves its draws, and those of no other."""
    draws = TableModel(lambda row: [0.6, 0.4])
    decoder = Sample(XTC(0.1, 0.5))
    texts = [generate(draws, [0], decoder, seed=seed, max_new_tokens=12).scores for seed in range(20)]
    # A coin that falls cuts the likelier token, and the other one has log p = 0 then.
    assert len({tuple(score == 0 for score in scores) for scores in texts}) > 15
    together = generate(draws, [[0]] * 20, decoder, seed=list(range(20)), max_new_tokens=12)
    assert [out.scores for out in together] == texts
