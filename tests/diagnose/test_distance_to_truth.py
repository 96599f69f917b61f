import math

import pytest
import torch

from unspool.data.known_languages import LANGUAGES
from unspool.data.known_languages.known_language import TrueModel
from unspool.diagnose.overestimation import distance, sentences, speaks, true_probabilities
from unspool.diagnose.softmax_bottleneck import first_positions, log_probabilities, rank_limit, spectrum
from unspool.heads.softmax import SoftmaxHeadConfig
from unspool.models.rnn_models import RNNConfig
from unspool.testing import bigram

LANGUAGE = LANGUAGES["senses"](word_count=40)


def test_by_hand():
    """Two words, of which the second cannot come; the model finds them equally probable; s = 0.2."""
    logp, true = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[1.0, 0.0]])
    found = distance(logp, true, limit=1, share=0.2)
    assert found.reached == pytest.approx(math.hypot(math.log(0.9 / 0.5), math.log(0.1 / 0.5)))
    assert found.least == pytest.approx(0.0)
    assert distance(logp, true, limit=0, share=0.2).least == pytest.approx(
        math.hypot(math.log(0.9), math.log(0.1))
    )
    assert found.delta == pytest.approx(math.log(2))
    assert (found.tau, found.overestimation) == (pytest.approx(0.5), pytest.approx(0.5))
    assert (found.rank, found.share) == (1, 0.2)
    assert distance(logp, true, limit=None).least is None


@pytest.mark.parametrize("bias", [False, True])
def test_the_best_prediction_of_a_biased_head_may_go_below_the_bound_without_its_bias(bias):
    """A bound at D + 1 would be none for a head with a bias: its log-probabilities have rank D + 2."""
    torch.manual_seed(0)
    model = RNNConfig(vocab_size=30, width=4, head=SoftmaxHeadConfig(bias=bias)).build()
    for parameter in model.head.parameters():
        torch.nn.init.normal_(parameter)
    with torch.no_grad():
        logp = model.head(torch.randn(50, 4)).double()
    found = distance(logp, logp.exp(), rank_limit(model), share=1e-12)
    assert found.least <= found.reached + 1e-4
    assert (distance(logp, logp.exp(), 4 + 1, share=1e-12).least > found.reached + 1) == bias


def test_sentences_have_as_many_places_as_are_asked_for_and_fit_the_context():
    parts = sentences(LANGUAGE, 100, seed=3)
    assert sum(len(it.tokens) - 1 for it in parts) >= 100 > sum(len(it.tokens) - 1 for it in parts[:-1])
    assert {(it.tokens[0], it.tokens[-1], it.first) for it in parts} == {(LANGUAGE.bos, LANGUAGE.eos, 1)}
    assert sentences(LANGUAGE, 100, seed=3) == parts != sentences(LANGUAGE, 100, seed=4)
    short = sentences(LANGUAGE, 100, seed=3, context=4)
    assert max(len(it.tokens) for it in short) == 4
    assert [it.tokens for it in short[: len(parts)]] == [it.tokens[:4] for it in parts]


def test_true_probabilities_are_at_the_positions_of_the_model():
    parts = sentences(LANGUAGE, 20)
    found = true_probabilities(LANGUAGE, parts, 20)
    assert len(found) == 20
    prefixes = [
        it.tokens[:end]
        for it in sorted(first_positions(parts, 20), key=lambda it: len(it.tokens), reverse=True)
        for end in range(1, len(it.tokens))
    ]
    expected = torch.stack([torch.from_numpy(LANGUAGE.next(prefix)) for prefix in prefixes])
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)


def test_the_truth_itself_has_no_distance():
    parts = sentences(LANGUAGE, 60)
    true = true_probabilities(LANGUAGE, parts, 60)
    found = distance(log_probabilities(TrueModel(LANGUAGE), parts, 60).clamp(min=-20.0), true, None)
    assert found.delta == pytest.approx(0.0, abs=1e-6)
    assert found.overestimation < 1e-6
    assert found.rank == spectrum(((1 - 1e-6) * true + 1e-6 / LANGUAGE.vocab_size).log().float()).rank


def test_only_a_model_of_the_languages_own_words_speaks_it():
    model = RNNConfig(vocab_size=LANGUAGE.vocab_size, width=4)
    assert speaks(model.build(LANGUAGE.new_tokenizer()), LANGUAGE)
    assert not speaks(model.build(LANGUAGES["agreement"]().new_tokenizer()), LANGUAGE)
    assert not speaks(bigram([[1.0]]), LANGUAGE)
