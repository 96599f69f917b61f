from random import Random

import unspool as us
from unspool.data.known_languages import ZipfMarkov
from unspool.data.known_languages.known_language import TrueModel
from unspool.lab.claims.degeneration import (
    TOKENS,
    beam_lengths,
    complete,
    continuations,
    prefixes,
)
from unspool.lab.small_models import OPENING_TOKENS, OPENINGS, PASSAGES, prompts_of, sample_sentences


def test_a_perfect_speaker_says_nothing_impossible():
    truth = ZipfMarkov(word_count=12, order=1, stop=0.5)
    found = sample_sentences(TrueModel(truth), truth, us.Sample(), 30, 1)
    assert (found.precision, found.texts) == (1.0, 30)


def test_each_seed_has_prompts_of_its_own():
    model = us.load("bible")
    one, same, other = (prompts_of(model, 3, seed) for seed in (1, 1, 2))
    assert one == same
    opening = tuple(model.tokenizer.encode(OPENINGS[0]))
    for prompts in (one, other):
        assert len(prompts) == 3
        assert prompts[0][: len(opening)] == opening
        assert len(prompts[0]) == len(opening) + OPENING_TOKENS
    assert not set(one) & set(other)


def test_a_perfect_model_completes_every_sentence():
    truth = ZipfMarkov(word_count=20, order=1, branching=2, stop=0.4)  # greedy search ends soon
    starts = prefixes(truth, 10, 1)
    assert all(start[0] == truth.bos and 2 <= len(start) <= 4 for start in starts)
    share, different = complete(TrueModel(truth), truth, starts)
    assert share == 1.0
    assert 1 <= different <= 10


def test_three_continuations_of_as_many_tokens():
    model = us.load("bible")
    prompt, ways = continuations(model, PASSAGES[0], Random(1))
    assert {len(way) for way in ways.values()} == {TOKENS}
    whole = model.tokenizer.decode([*prompt, *ways["reasonable"]])
    assert PASSAGES[0].startswith(whole.strip())
    assert ways["repetition"] == [token for token in prompt if token != model.tokenizer.bos_id][:TOKENS]
    assert sorted(ways["nonsense"]) != sorted(ways["reasonable"])


def test_the_end_is_no_word():
    truth = ZipfMarkov(word_count=1, order=1, stop=0.6)  # a word, and then most probably the end
    found, outs = beam_lengths(TrueModel(truth), [[truth.bos]], 2, 10)
    assert found == [1]
    assert outs[0].tokens == (4, 2)
