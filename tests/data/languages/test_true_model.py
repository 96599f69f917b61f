from __future__ import annotations

import math
from collections import Counter
from random import Random

import numpy as np
import pytest
import torch

import unspool as us
from unspool.data.known_languages import Agreement, SenseChain, ZipfMarkov
from unspool.data.known_languages.known_language import TrueModel

LANGUAGE = Agreement(nouns=1, verbs=1, fillers=1, filler=0.3, embed=0.2, depth=2)
NOUN, SO, VERB = (LANGUAGE.words.index(word) for word in ("noun0-sg", "so0", "verb0-sg"))


@pytest.mark.parametrize(
    "language", [LANGUAGE, SenseChain(), ZipfMarkov(50)], ids=lambda it: type(it).__name__
)
def test_step_by_step_it_says_what_the_language_says(language):
    model, sentence = TrueModel(language), language.sample(Random(1))
    step, state = model.start([[], sentence[:1]])
    for at, token in enumerate(sentence):
        expected = torch.from_numpy(language.next(sentence[:at])).log().float()
        assert torch.equal(step.logp_NV[0], expected)
        if at == 1:
            state = state.select(torch.tensor([0, 0]))
        step, state = model.step(state, torch.tensor([token, token if at else language.sample(Random(1))[1]]))
    assert model.vocab_size == language.vocab_size == step.logp_NV.shape[1]
    assert model.context is None


def test_rows_are_reordered():
    model = TrueModel(LANGUAGE)
    _, state = model.start([[NOUN], [NOUN, SO, VERB]])
    step, _ = model.step(state.select(torch.tensor([0, 0])), torch.tensor([SO, VERB]))
    assert step.logp_NV[1, 2] == 0.0
    assert step.logp_NV[0, SO].exp() == pytest.approx(0.3)


def test_after_the_end_comes_the_end():
    model = TrueModel(LANGUAGE)
    _, state = model.start([[NOUN, VERB]])
    for _ in range(2):
        step, state = model.step(state, torch.tensor([2]))
        assert step.logp_NV[0].exp().tolist() == [0, 0, 1, *[0] * (model.vocab_size - 3)]


def test_an_impossible_token_is_an_error():
    model = TrueModel(LANGUAGE)
    with pytest.raises(ValueError, match="impossible from position 0"):
        model.start([[VERB]])
    _, state = model.start([[]])
    with pytest.raises(ValueError, match=f"token {VERB} cannot come here"):
        model.step(state, torch.tensor([VERB]))


def test_every_search_runs_on_it():
    model = TrueModel(LANGUAGE)
    best = us.generate(model, [1], us.Beam(4), max_new_tokens=8)
    # Two words: noun and verb, 1/2 · 1/2; nothing is more probable.
    assert best.text in {"noun0-sg verb0-sg", "noun0-pl verb0-pl"}
    assert sum(best.logps) == pytest.approx(math.log(0.25), abs=1e-6)


def test_sampling_from_the_truth_is_sampling_the_language():
    drawn = us.generate(TrueModel(LANGUAGE), [1], us.Sample(), n=600, seed=1, max_new_tokens=60)
    seen = Counter(out.text for out in drawn)
    for line in ("noun0-sg verb0-sg", "noun0-pl so0 verb0-pl"):
        chance = math.exp(LANGUAGE.log_prob(LANGUAGE.new_tokenizer().encode(line)))
        assert abs(seen[line] - 600 * chance) < 4 * np.sqrt(600 * chance)
