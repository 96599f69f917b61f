from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from unspool.data.known_languages import ZipfMarkov
from unspool.data.random_numbers import GOLDEN, MASK, mix


def test_the_hash_is_splitmix():
    # The first two numbers of SplitMix64 with seed 0, as its authors' reference gives them.
    assert mix(GOLDEN) == 0xE220A8397B1DCDAF
    assert mix(2 * GOLDEN & MASK) == 0x6E789E6AA1B965F4


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, MASK), min_size=1))
def test_numbers_and_arrays_hash_alike(numbers):
    assert mix(np.array(numbers, dtype=np.uint64)).tolist() == [mix(number) for number in numbers]


def test_by_hand(monkeypatch):
    # Followers 5, 6, 5 of weights 1, 1/2, 1/3: 5 has (1 + 1/3)/(11/6) = 8/11 of what the end leaves, 6 has 3/11.
    language = ZipfMarkov(word_count=3, order=1, branching=3, stop=0.12)
    weights = np.array([[1, 1 / 2, 1 / 3]]) / (11 / 6) * 0.88
    monkeypatch.setattr(ZipfMarkov, "followers", lambda self, contexts: (np.array([[5, 6, 5]]), weights))
    assert language.probabilities((4,)).tolist() == pytest.approx([0, 0, 0.12, 0, 0, 0.64, 0.24])


def test_one_follower_leaves_no_choice():
    language = ZipfMarkov(word_count=20, order=2, branching=1, stop=0.25)
    sentence = max((language.sample(Random(seed)) for seed in range(20)), key=len)
    assert len(sentence) > 4
    for at in range(1, len(sentence)):
        row = language.next(sentence[:at])
        assert (row[sentence[at]], row[language.eos]) == (0.75, 0.25)
    assert language.next(())[sentence[0]] == 1.0


def test_words_depend_on_the_last_one_or_two_only():
    random = Random(2)
    for order in (1, 2):
        language = ZipfMarkov(word_count=30, order=order, branching=8)
        sentence = max((language.sample(random) for _ in range(50)), key=len)
        row = language.next(sentence)
        assert np.array_equal(row, language.rows(np.array([sentence[-order:]]))[0])
    first, second = language.rows(np.array([[4, 6], [5, 6]]))
    assert not np.array_equal(first, second)


def test_many_rows_at_once_are_the_same_rows():
    language = ZipfMarkov(word_count=40)
    contexts = np.array([[1, 1], [1, 9], [12, 9], [4, 4]])
    rows = language.rows(contexts)
    assert all(
        np.array_equal(rows[at], language.probabilities(tuple(context)))
        for at, context in enumerate(contexts)
    )
    assert rows[0, 2] == 0.0
    assert rows[1:, 2].tolist() == [0.1] * 3


def test_few_words_can_follow_and_their_number_varies():
    language = ZipfMarkov(word_count=20_000, branching=32)
    contexts = np.random.default_rng(1).integers(4, 20_004, (500, 2))
    tokens, probabilities = language.followers(contexts)
    counts = [len(set(row[kept > 0].tolist())) for row, kept in zip(tokens, probabilities, strict=True)]
    assert min(counts) == 1
    assert 25 < max(counts) <= 32
    # Half of the contexts have at most √33 followers: their number is log-uniform.
    assert 0.4 < np.mean([count < math.sqrt(33) for count in counts]) < 0.6


def test_averaged_over_contexts_words_follow_zipf():
    contexts = np.stack(np.meshgrid(np.arange(4, 154), np.arange(4, 154)), axis=-1).reshape(-1, 2)
    tokens, probabilities = ZipfMarkov(word_count=150, branching=4, stop=0.5).followers(contexts)
    mean = np.bincount(tokens.ravel(), weights=probabilities.ravel(), minlength=154)[4:] / len(contexts) / 0.5
    expected = 1 / np.arange(1, 151) / (1 / np.arange(1, 151)).sum()
    # A context's own share varies less than a draw of one word would.
    assert (np.abs(mean - expected) < 4.5 * np.sqrt(expected / len(contexts))).all()


def test_the_length_is_geometric(enumerate_sentences):
    language = ZipfMarkov(word_count=3, order=1, branching=2, stop=0.4)
    ended, rest = enumerate_sentences(language, 5)
    for length in range(1, 6):
        mass = sum(chance for sentence, chance in ended.items() if len(sentence) == length)
        assert mass == pytest.approx(0.4 * 0.6 ** (length - 1))
    assert rest == pytest.approx(0.6**5)
    assert language.mean_length() == 2.5


def test_a_large_vocabulary_keeps_no_table():
    language = ZipfMarkov(word_count=20_000)
    sentence = language.sample(Random(1))
    assert language.vocab_size == 20_004
    assert math.isfinite(language.log_prob(sentence))
    held = [len(value) for value in vars(language).values() if hasattr(value, "__len__")]
    assert max(held) == 20_004


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"word_count": 0}, "word_count is 0"),
        ({"branching": 0}, "branching is 0"),
        ({"order": 3}, "order is 3"),
        ({"stop": 0.0}, "no sentence would end"),
        ({"stop": 1.5}, "stop ≤ 1"),
        ({"exponent": -1.0}, "exponent is -1"),
        ({"decay": math.nan}, "decay is nan"),
    ],
)
def test_nonsense_is_refused(settings, match):
    with pytest.raises(ValueError, match=match):
        ZipfMarkov(**settings)
