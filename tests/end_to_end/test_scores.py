"""us.score of every kind of model: equal to a sum made by hand, token by token, alone and in a batch."""

import math

import pytest
import torch

import unspool as us
from unspool.data.known_languages import Agreement
from unspool.data.known_languages.known_language import TrueModel
from unspool.heads import HEADS
from unspool.tokenization.vocabulary import train_characters

TEXT = train_characters(["abcdef. "])
SIZES = {"vocab_size": TEXT.vocab_size, "width": 8, "heads": 2, "inner_width": 8}
RNN = {"vocab_size": TEXT.vocab_size, "width": 8}
CONFIGS = {
    "transformer": us.models.TransformerConfig(**SIZES, layers=2),
    "transformer with KerBS": us.models.TransformerConfig(**SIZES, layers=1, head=HEADS["kerbs"]()),
    "transformer with a mixture": us.models.TransformerConfig(**SIZES, layers=1, head=HEADS["mixture"]()),
    "rnn": us.models.RNNConfig(**RNN),
    "trigram": us.models.TrigramConfig(**RNN, inner_width=8),
    "transformer pairs": us.models.TransformerSeq2SeqConfig(**SIZES, encoder_layers=1, decoder_layers=1),
    "rnn pairs": us.models.RNNSeq2SeqConfig(**RNN),
}


def built(name, engine=None):
    torch.manual_seed(0)
    model = CONFIGS[name].build(TEXT).eval()
    if engine is not None and model.engine is not None:
        model.engine = engine
    return model


def combined():
    one, two = built("transformer"), built("rnn")
    return {"ensemble": us.Ensemble([one, two]), "contrast": us.Contrast(one, two, alpha=0.1)}


def by_hand(model, prompt, text):
    """Σ log p of each token, one step after the other, one row alone."""
    step, state = model.start([prompt])
    found = []
    for token in text:
        found.append(float(step.logp_NV[0, token]))
        step, state = model.step(state, torch.tensor([token]))
    return found


def check(model, prompts, texts):
    scores = us.score(model, prompts, texts)
    for prompt, text, found in zip(prompts, texts, scores, strict=True):
        expected = by_hand(model, prompt, text)
        assert found.logps == pytest.approx(expected, abs=2e-5)
        assert found.total == pytest.approx(math.fsum(found.logps))
        assert us.score(model, prompt, text).logps == pytest.approx(found.logps, abs=2e-5)


PROMPTS = [[4], [5, 6, 7], [8, 9]]
TEXTS = [[5, 6, 7, 8, 9], [4], [10, 4, 4]]


@pytest.mark.parametrize(
    ("name", "engine"),
    [(name, "torch") for name in CONFIGS] + [(name, "compiled") for name in CONFIGS if "transformer" in name],
)
def test_a_model_of_ours(name, engine):
    check(built(name, engine), PROMPTS, TEXTS)


@pytest.mark.parametrize("name", ["ensemble", "contrast"])
def test_models_made_of_models(name):
    check(combined()[name], PROMPTS, TEXTS)


def test_the_truth_itself():
    language = Agreement()
    model = TrueModel(language)
    sentence = (4, 44, 44)
    found = us.score(model, [language.bos], sentence)
    assert found.total == pytest.approx(
        math.log(math.prod(language.next(sentence[:n])[t] for n, t in enumerate(sentence)))
    )


def test_scores_of_loaded_models():
    check(us.load("bible"), [[5, 6], [7]], [[8, 9, 10], [11, 12]])
    check(us.load("dates"), [[5, 6], [7]], [[8, 9, 10], [11, 12]])


def test_a_model_that_says_no_tokens_one_after_the_other_is_refused():
    from unspool.models import MODELS

    config = MODELS["masked_lm"](**SIZES, layers=1, context=16)
    with pytest.raises((TypeError, ValueError), match=r"token|infill|hidden|places"):
        us.score(config.build(TEXT).eval(), [4], [5])
