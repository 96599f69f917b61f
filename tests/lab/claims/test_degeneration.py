import pytest

import unspool as us
from unspool.data.known_languages import ZipfMarkov
from unspool.data.known_languages.known_language import TrueModel
from unspool.lab.claims.degeneration import CLAIM, NAMES, repetition, sentences


def test_a_perfect_speaker_says_nothing_impossible():
    truth = ZipfMarkov(word_count=12, order=1, stop=0.5)
    found = sentences(TrueModel(truth), truth, us.Sample(), 30, 1)
    assert (found.precision, found.texts) == (1.0, 30)


def test_repetition_is_counted():
    model = us.load("bible")
    looped = us.BadWords([[token] for token in range(model.vocab_size) if token != 5])
    # Four of five 4-grams are the first one again.
    assert repetition(model, us.Greedy(looped), 1, 8, 1) == pytest.approx(0.8)


def test_every_part_can_fail(every_part_can_fail):
    good = {
        **{"greedy: repetition": 0.5, "sampling: repetition": 0.01, "top-p 0.9: repetition": 0.05},
        **{"sampling: impossible sentences": 0.6, "top-p 0.9: impossible sentences": 0.2},
        **{"top-p 0.9: different sentences": 0.8, "sampling: different sentences": 1.0},
    }
    changes = [
        {"greedy: repetition": 0.1},
        {"top-p 0.9: impossible sentences": 0.6},
        {"top-p 0.9: different sentences": 0.1},
    ]
    every_part_can_fail(CLAIM, good, changes)
    assert NAMES[0] == "greedy"
