"""What must hold for every language: each is tried in several tiny and default forms."""

from __future__ import annotations

import math
from collections import Counter
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from unspool.data.known_languages import LANGUAGES, Agreement, FullSupport, SenseChain, ZipfMarkov
from unspool.tokenization.vocabulary import SPECIALS

DEFAULT = [make() for make in LANGUAGES.values()]
TINY = [
    ZipfMarkov(word_count=3, order=1, branching=2, stop=0.4),
    ZipfMarkov(word_count=3, order=2, branching=4, stop=0.3, seed=5),
    Agreement(nouns=1, verbs=2, fillers=1, filler=0.3, embed=0.2, depth=2),
    Agreement(nouns=1, verbs=1, fillers=1, genders=2, filler=0.3, embed=0.3, depth=3),
    SenseChain(word_count=4, topics=2, most_senses=2, near=2, far=1, drift=0.3, stop=0.4),
    SenseChain(word_count=3, topics=1, most_senses=1, near=2, far=1, stop=0.5),
]
languages = st.sampled_from(DEFAULT + TINY)


@settings(deadline=None, max_examples=50)
@given(languages, st.integers(0, 10**6), st.floats(0, 1))
def test_probabilities_add_up_to_one_after_every_prefix(language, seed, share):
    sentence = language.sample(Random(seed))
    row = language.next(sentence[: round(share * len(sentence))])
    assert row.shape == (language.vocab_size,)
    assert row.min() >= 0
    assert row.sum() == pytest.approx(1.0, abs=1e-12)
    assert row[[0, 1, 3]].tolist() == [0, 0, 0]


@settings(deadline=None, max_examples=50)
@given(languages, st.integers(0, 10**6))
def test_a_sentence_has_the_product_of_its_next_tokens(language, seed):
    sentence = (*language.sample(Random(seed)), language.eos)
    each = [math.log(language.next(sentence[:at])[token]) for at, token in enumerate(sentence)]
    assert language.log_prob(sentence[:-1]) == pytest.approx(sum(each), abs=1e-9)


@pytest.mark.parametrize("language", TINY, ids=repr)
def test_all_sentences_and_the_unfinished_rest_add_up_to_one(language, enumerate_sentences):
    ended, rest = enumerate_sentences(language, 6)
    assert math.fsum(ended.values()) + rest == pytest.approx(1.0, abs=1e-12)
    assert 0.0 < rest < 0.5
    for sentence, chance in list(ended.items())[:200]:
        assert math.exp(language.log_prob(sentence)) == pytest.approx(chance, rel=1e-9)


@pytest.mark.parametrize("language", DEFAULT + TINY, ids=repr)
def test_samples_follow_the_probabilities(language, misfit):
    assert misfit(language, draws=4000, seed=1) > 1e-3


def test_a_wrong_truth_is_noticed(misfit):
    class Wrong(ZipfMarkov):
        def probabilities(self, state):
            row = super().probabilities(state)
            row[4:] *= (1 - row[self.eos] - 0.03) / (1 - row[self.eos])
            row[self.eos] += 0.03
            return row

    assert misfit(Wrong(word_count=3, order=1, branching=2, stop=0.4), draws=4000, seed=1) < 1e-6


@pytest.mark.parametrize("language", DEFAULT + TINY, ids=repr)
def test_the_tokenizer_has_the_ids_of_the_language(language):
    codec = language.new_tokenizer()
    assert language.words[:4] == SPECIALS
    assert (codec.vocab_size, codec.bos_id, codec.eos_ids) == (
        language.vocab_size,
        language.bos,
        {language.eos},
    )
    sentence = language.sample(Random(3))
    assert codec.encode(language.spell(sentence)) == [language.bos, *sentence]
    assert codec.decode(range(4, language.vocab_size)) == " ".join(language.words[4:])


@pytest.mark.parametrize("language", DEFAULT, ids=repr)
def test_the_same_seed_says_the_same(language):
    again = type(language)()
    assert again == language
    assert [language.sample(Random(7)) for _ in range(3)] == [again.sample(Random(7)) for _ in range(3)]
    assert language.sample(Random(7)) != language.sample(Random(8))


def test_bos_may_come_first():
    language = Agreement()
    sentence = language.sample(Random(1))
    assert np.array_equal(language.next([1, *sentence]), language.next(sentence))
    assert language.log_prob([1, *sentence]) == language.log_prob(sentence)


@pytest.mark.parametrize(
    ("prefix", "match"),
    [
        ((0,), r"position 0 .* token 0 \(<pad>\)"),
        ((4, 1), r"position 1 .* 1 \(<bos>\)"),
        ((999,), r"999 \(ids run to 7\)"),
        ((-1,), r"-1 \(ids run to 7\)"),
    ],
)
def test_an_impossible_prefix_is_an_error_and_has_no_probability(prefix, match):
    language = ZipfMarkov(word_count=4, order=1, branching=64)
    with pytest.raises(ValueError, match=match):
        language.next(prefix)
    assert language.log_prob(prefix) == -math.inf


def test_a_prefix_does_not_end():
    language = Agreement()
    sentence = language.sample(Random(1))
    with pytest.raises(ValueError, match=r"2 \(<eos>\) cannot come there; .* without its EOS"):
        language.next([*sentence, 2])
    assert language.log_prob([*sentence, 2]) == -math.inf


def test_a_sentence_that_cannot_end_there_has_no_probability():
    language = Agreement()
    assert language.log_prob(language.sample(Random(1))[:-1]) == -math.inf
    assert language.log_prob(()) == -math.inf


@pytest.mark.parametrize("value", [-0.1, 1.0, math.nan])
def test_a_share_leaves_room(value):
    with pytest.raises(ValueError, match=r"SenseChain\.drift is"):
        SenseChain(drift=value)
    assert SenseChain(drift=0.0).drift == 0


@pytest.mark.parametrize("value", [0, -1, 2.0, True, "3"])
def test_a_count_counts(value):
    with pytest.raises((TypeError, ValueError), match=r"SenseChain\.near is .* ≥ 1"):
        SenseChain(near=value)


def test_with_noise_no_sentence_is_impossible_and_the_sampler_follows_the_probabilities():
    language = FullSupport(Agreement(nouns=2, verbs=2, fillers=2), 0.2)
    rng, first, sentences = Random(0), Counter(), 4000
    for _ in range(sentences):
        sentence = language.sample(rng)
        assert math.isfinite(language.log_prob(sentence))
        first[sentence[0] if sentence else language.eos] += 1
    p_V = language.next([])
    assert p_V.sum() == pytest.approx(1.0)
    assert (p_V[[language.eos, *range(len(SPECIALS), language.vocab_size)]] > 0).all()
    for token in range(language.vocab_size):
        spread = math.sqrt(p_V[token] * (1 - p_V[token]) / sentences)
        assert first[token] / sentences == pytest.approx(p_V[token], abs=4 * spread + 1e-12)


def test_noise_does_not_change_the_state_of_the_language():
    plain = Agreement(nouns=2, verbs=2, fillers=2)
    language = FullSupport(plain, 0.1)
    noun, verb = int(plain.noun_ids[0, 0]), int(plain.verb_ids[1, 0])  # they do not agree
    assert language.state([noun, verb]) == plain.state([noun])
