from __future__ import annotations

import math

import pytest
from hypothesis import given, settings, strategies as st

from unspool.data.known_languages import PCFG

PAIRS = PCFG(("S -> S S 0.3", "S -> a 0.5", "S -> b 0.2"))
A, B = 4, 5


def ids(language, line):
    return tuple(language.words.index(word) for word in line.split())


@settings(deadline=None, max_examples=50)
@given(st.lists(st.sampled_from([A, B]), min_size=1, max_size=9))
def test_by_hand_every_tree_counts(sentence):
    # n words have Catalan(n − 1) trees, each with n − 1 times S -> S S.
    n = len(sentence)
    trees = math.comb(2 * n - 2, n - 1) / n
    chance = trees * 0.3 ** (n - 1) * math.prod({A: 0.5, B: 0.2}[word] for word in sentence)
    assert math.exp(PAIRS.log_prob(sentence)) == pytest.approx(chance)


def test_by_hand_what_comes_next():
    # The first word is an S however deep: it is a, b with 5/7, 2/7. It is the whole sentence with 0.7.
    assert PAIRS.next(()).tolist() == pytest.approx([0, 0, 0, 0, 5 / 7, 2 / 7])
    assert PAIRS.next((B,)).tolist() == pytest.approx([0, 0, 0.7, 0, 0.3 * 5 / 7, 0.3 * 2 / 7])


def test_a_prefix_has_the_mass_of_all_that_it_begins(enumerate_sentences):
    # Against sentences written out one by one, with closed-form probabilities.
    language = PCFG(("S -> S S 0.1", "S -> a 0.6", "S -> b 0.3"))
    begun = {(): 0.0, (A,): 0.0, (A, B): 0.0, (A, B, B): 0.0}
    for n in range(1, 13):
        trees = math.comb(2 * n - 2, n - 1) / n * 0.1 ** (n - 1)
        for bits in range(2**n):
            sentence = tuple(A if bits >> at & 1 else B for at in range(n))
            chance = trees * 0.6 ** sentence.count(A) * 0.3 ** sentence.count(B)
            for prefix in begun:
                begun[prefix] += chance * (sentence[: len(prefix)] == prefix)
    assert begun[()] == pytest.approx(1.0, abs=1e-5)
    for prefix, more in (((), A), ((A,), B), ((A, B), B)):
        expected = begun[(*prefix, more)] / begun[prefix]
        assert language.next(prefix)[more] == pytest.approx(expected, abs=1e-4)


def test_only_what_the_grammar_allows_can_come():
    english = PCFG()
    row = english.next(ids(english, "she sees the"))
    assert {english.words[token] for token in row.nonzero()[0]} == {
        *("dog", "girl", "park", "telescope", "old", "small")
    }
    row = english.next(ids(english, "she sees the girl"))
    assert {english.words[token] for token in row.nonzero()[0]} == {"<eos>", "in", "with", "near"}
    assert english.log_prob(ids(english, "she the")) == -math.inf


def test_an_ambiguous_sentence_sums_over_its_trees():
    english = PCFG()
    she_sees = 0.1 * 0.6 * 0.7
    girl, telescope = 0.7 * 0.6 * 0.2, 0.7 * 0.3 * 0.1
    with_it = 0.4 * telescope
    # VP -> VP PP, or NP -> NP PP.
    expected = she_sees * girl * with_it * (0.2 + 0.15)
    found = english.log_prob(ids(english, "she sees the girl with a telescope"))
    assert math.exp(found) == pytest.approx(expected)


def test_long_sentences_do_not_underflow():
    language = PCFG(("S -> A S 0.99", "S -> z 0.01", "A -> a 1e-7", "A -> b 0.9999999"))
    row = language.next([A] * 60)
    assert row.sum() == pytest.approx(1.0)
    assert row[language.words.index("a")] == pytest.approx(0.99 * 1e-7)
    assert language.log_prob([*[A] * 60, 6]) == pytest.approx(60 * math.log(0.99e-7) + math.log(0.01))


@pytest.mark.parametrize(
    ("rules", "match"),
    [
        ((), "no rules"),
        (("S -> a",), "is no rule"),
        (("S = a 1",), "is no rule"),
        (("S -> a b c 1",), "is no rule"),
        (("S -> a x",), "is no rule"),
        (("S -> a -1",), "is no rule"),
        (("S -> a 0.5", "S -> b 0.4"), "add up to 0.9"),
        (("S -> T T 0.2", "S -> a 0.8"), "no rule for T"),
        (("S -> T 1", "T -> a 1"), "one symbol alone must be a word"),
        (("S -> S S 0.6", "S -> a 0.4"), r"factor of 1\.2 .* would not end"),
        (("S -> S S 0.5", "S -> a 0.5"), "factor of 1 from"),
    ],
)
def test_a_bad_grammar_is_refused(rules, match):
    with pytest.raises(ValueError, match=match):
        PCFG(rules)
