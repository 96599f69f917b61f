from math import exp, inf, log
from random import Random

import pytest

import unspool as us
from unspool.data.known_languages import Agreement
from unspool.data.known_languages.known_language import TrueModel
from unspool.evaluate.known_truth import text_truth

LANGUAGE = Agreement()
DICE = Random(0)
GOOD = LANGUAGE.sample(DICE)
OTHER = next(it for it in iter(lambda: LANGUAGE.sample(DICE), None) if it != GOOD)
BAD = (*GOOD, *GOOD, GOOD[0])


def test_by_hand():
    p, r = exp(LANGUAGE.log_prob(GOOD)), exp(LANGUAGE.log_prob(OTHER))
    found = text_truth([GOOD, (LANGUAGE.bos, *GOOD, LANGUAGE.eos), OTHER, BAD], LANGUAGE)
    assert (found.texts, found.different) == (4, 3)
    assert found.precision == 0.75
    assert found.recall == pytest.approx(p + r)
    assert found.total_variation == pytest.approx(1 - min(p, 0.5) - min(r, 0.25))
    assert found.reverse_kl == inf
    assert found.logp == pytest.approx((2 * log(p) + log(r)) / 3)


def test_against_brute_force_over_all_sentences():
    """TV as its definition has it: the sum over every sentence of the language, said or not."""

    dice = Random(1)
    texts = [LANGUAGE.sample(dice) for _ in range(50)]
    found = text_truth(texts, LANGUAGE)
    everything = set(texts) | {LANGUAGE.sample(dice) for _ in range(3000)}
    share = {it: texts.count(it) / 50 for it in everything}
    known = {it: exp(LANGUAGE.log_prob(it)) for it in everything}
    unseen = 1 - sum(known.values())
    half = (sum(abs(share[it] - known[it]) for it in everything) + unseen) / 2
    assert found.total_variation == pytest.approx(half)
    assert found.precision == 1


def test_nothing_possible():
    found = text_truth([BAD], LANGUAGE)
    assert (found.precision, found.recall, found.total_variation, found.logp) == (0, 0, 1, -inf)


def test_texts_that_were_drawn_and_texts_that_were_cut():
    model, said = TrueModel(LANGUAGE), {}
    for limit in (3, 300):
        outs = us.generate(model, [LANGUAGE.bos], us.Sample(), n=30, max_new_tokens=limit, seed=0)
        said[limit] = text_truth([it.tokens for it in outs], LANGUAGE)
    assert said[300].precision == 1
    assert said[3].precision < 0.5


def test_an_invalid_text_raises():
    with pytest.raises(ValueError, match="at least one"):
        text_truth([], LANGUAGE)
    with pytest.raises(TypeError, match="one of unspool"):
        text_truth([GOOD], None)
