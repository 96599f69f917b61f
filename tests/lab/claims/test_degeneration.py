from random import Random

import pytest

import unspool as us
from unspool.data.known_languages import ZipfMarkov
from unspool.data.known_languages.known_language import TrueModel
from unspool.lab.claims.degeneration import (
    NAMES,
    TOKENS,
    beam_lengths,
    complete,
    continuations,
    contrastive_decoding,
    degeneration,
    large_beams,
    likelihood_trap,
    model_size,
    prefixes,
    repetition,
)
from unspool.lab.small_models import PASSAGES, sample_sentences


def test_a_perfect_speaker_says_nothing_impossible():
    truth = ZipfMarkov(word_count=12, order=1, stop=0.5)
    found = sample_sentences(TrueModel(truth), truth, us.Sample(), 30, 1)
    assert (found.precision, found.texts) == (1.0, 30)


def test_repetition_is_counted():
    model = us.load("bible")
    looped = us.BadWords([[token] for token in range(model.vocab_size) if token != 5])
    # Four of five 4-grams are the first one again.
    assert repetition(model, us.Greedy(looped), 1, 8, 1) == pytest.approx(0.8)


def test_every_part_of_degeneration_can_fail(every_part_can_fail):
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
    every_part_can_fail(degeneration, good, changes)
    assert NAMES[0] == "greedy"


def test_a_perfect_model_completes_every_sentence():
    truth = ZipfMarkov(word_count=20, order=1, branching=2, stop=0.4)  # greedy search ends soon
    starts = prefixes(truth, 10, 1)
    assert all(start[0] == truth.bos and 2 <= len(start) <= 4 for start in starts)
    share, different = complete(TrueModel(truth), truth, starts)
    assert share == 1.0
    assert 1 <= different <= 10


def test_every_part_of_contrastive_decoding_can_fail(every_part_can_fail):
    good = {
        **{"contrast, greedy: repetition": 0.2, "strong, greedy: repetition": 0.5},
        **{"contrast, greedy: possible sentences": 0.9, "strong, greedy: possible sentences": 0.9},
    }
    changes = [{"contrast, greedy: repetition": 0.4}, {"contrast, greedy: possible sentences": 0.8}]
    every_part_can_fail(contrastive_decoding, good, changes)


def test_every_part_of_model_size_can_fail(every_part_can_fail):
    good = {"sampling": [0.1, 0.4, 0.8], "gap": [0.1, 0.3, 0.1]}
    changes = [{"sampling": [0.1, 0.9, 0.8]}, {"sampling": [0.1, 0.2]}, {"gap": [0.1, 0.2, 0.3]}]
    every_part_can_fail(model_size, good, changes)


def test_three_continuations_of_as_many_tokens():
    model = us.load("bible")
    prompt, ways = continuations(model, PASSAGES[0], Random(1))
    assert {len(way) for way in ways.values()} == {TOKENS}
    whole = model.tokenizer.decode([*prompt, *ways["reasonable"]])
    assert PASSAGES[0].startswith(whole.strip())
    assert ways["repetition"] == [token for token in prompt if token != model.tokenizer.bos_id][:TOKENS]
    assert sorted(ways["nonsense"]) != sorted(ways["reasonable"])


def test_every_part_of_likelihood_trap_can_fail(every_part_can_fail):
    good = {"repetition above reasonable": 8, "reasonable above nonsense": 7}
    every_part_can_fail(
        likelihood_trap, good, [{"repetition above reasonable": 4}, {"reasonable above nonsense": 6}]
    )


def test_the_end_is_no_word():
    truth = ZipfMarkov(word_count=1, order=1, stop=0.6)  # a word, and then most probably the end
    found, outs = beam_lengths(TrueModel(truth), [[truth.bos]], 2, 10)
    assert found == [1]
    assert outs[0].tokens == (4, 2)


def test_every_part_of_large_beams_can_fail(every_part_can_fail):
    good = {"perfect model": [10.0, 6.0, 5.0], "translator": [1.0, 0.9], "right": [0.5, 0.6, 0.4]}
    changes = [{"perfect model": [10.0, 9.0, 9.5]}, {"translator": [1.0, 0.99]}, {"right": [0.5, 0.6, 0.7]}]
    every_part_can_fail(large_beams, good, changes)
