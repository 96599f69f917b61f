from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from unspool.data.known_languages import Agreement
from unspool.data.known_languages.agreement import OpenClauses

SMALL = Agreement(nouns=2, verbs=2, fillers=1, filler=0.5, embed=0.2, depth=2)


def ids(language, line):
    return tuple(language.words.index(word) for word in line.split())


def test_the_words_are_all_forms():
    assert SMALL.words[4:] == (
        *("noun0-pl", "noun0-sg", "noun1-pl", "noun1-sg", "so0", "that"),
        *("verb0-pl", "verb0-sg", "verb1-pl", "verb1-sg"),
    )
    assert "noun1-pl-b" in Agreement(genders=2).words


def test_by_hand():
    # noun0-pl: half of the classes, 2/3 of Zipf over two; a filler: 1/2; its verb: 3/10, 2/3 of it for verb0.
    line = ids(SMALL, "noun0-pl so0 verb0-pl")
    assert math.exp(SMALL.log_prob(line)) == pytest.approx((1 / 2 * 2 / 3) * (1 / 2) * (3 / 10 * 2 / 3))
    row = SMALL.next(line[:2])
    said = {SMALL.words[token]: row[token] for token in row.nonzero()[0]}
    assert said == pytest.approx({"so0": 0.5, "that": 0.2, "verb0-pl": 0.2, "verb1-pl": 0.1})
    assert SMALL.next(line)[2] == 1.0


def test_the_inner_verb_comes_first():
    prefix = ids(SMALL, "noun0-pl so0 that noun1-sg so0 so0")
    assert SMALL.state(prefix) == OpenClauses((1, 0), noun_due=False)
    row = SMALL.next(prefix)
    said = {SMALL.words[token]: row[token] for token in row.nonzero()[0]}
    # At full depth nothing is nested: its share goes to the verb.
    assert said == pytest.approx({"so0": 0.5, "verb0-sg": 1 / 3, "verb1-sg": 1 / 6})
    back = SMALL.next((*prefix, *ids(SMALL, "verb0-sg")))
    assert {SMALL.words[token] for token in back.nonzero()[0]} == {"so0", "that", "verb0-pl", "verb1-pl"}


def test_the_verb_that_disagrees_is_impossible():
    assert SMALL.log_prob(ids(SMALL, "noun0-pl so0 verb0-sg")) == -math.inf
    with pytest.raises(ValueError, match=r"position 2 .*verb0-sg"):
        SMALL.next(ids(SMALL, "noun0-pl so0 verb0-sg"))


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(1, 4))
def test_every_verb_agrees_with_its_noun(seed, genders, depth):
    language = Agreement(genders=genders, depth=depth, embed=0.3)
    stack = []
    for word in language.spell(language.sample(Random(seed))).split():
        if word.startswith("noun"):
            stack.append(word.partition("-")[2])
        elif word.startswith("verb"):
            assert word.partition("-")[2] == stack.pop()
        assert len(stack) <= depth
    assert stack == []


def test_the_right_verbs_can_be_told_from_the_wrong():
    prefix = ids(SMALL, "noun1-sg so0")
    right = SMALL.state(prefix).open[-1]
    row = SMALL.next(prefix)
    assert row[SMALL.verb_ids[right]].sum() == pytest.approx(0.3)
    assert row[SMALL.verb_ids[1 - right]].sum() == 0.0


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"nouns": 0}, "nouns is 0"),
        ({"depth": 0}, "depth is 0"),
        ({"genders": 27}, "more than 26"),
        ({"filler": 1.0}, "filler is 1.0"),
        ({"filler": 0.6, "embed": 0.5}, "no probability is left for the verb"),
        ({"exponent": -1.0}, "exponent is -1"),
    ],
)
def test_nonsense_is_refused(settings, match):
    with pytest.raises(ValueError, match=match):
        Agreement(**settings)
