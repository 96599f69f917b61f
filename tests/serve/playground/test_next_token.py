import math

import pytest

import unspool as us
from unspool.serve.page.views import next_token
from unspool.testing import bigram

TABLE = [[0.5, 0.25, 0.25, 0], [0, 1, 0, 0], [0.1, 0.2, 0.3, 0.4], [0.25] * 4]


@pytest.fixture(scope="module")
def bible():
    return us.load("bible")


def test_a_distribution_by_hand():
    seen = next_token(bigram(TABLE), [0], count=2)
    assert [(token.id, token.text, token.p) for token in seen.tokens] == [
        (0, "<0>", pytest.approx(0.5)),
        (1, "<1>", pytest.approx(0.25)),
    ]
    assert seen.entropy == pytest.approx(1.5)  # ½·1 + 2·¼·2 bits
    assert (seen.vocabulary, seen.chosen, seen.ended, seen.decoders) == (4, (), None, ())


def test_a_token_that_was_chosen_is_read():
    seen = next_token(bigram(TABLE), [0], [2], count=4)
    assert [token.id for token in seen.tokens] == [3, 2, 1, 0]
    assert [(token.id, token.p) for token in seen.chosen] == [(2, pytest.approx(0.25))]


def test_impossible_tokens_are_not_shown():
    assert [token.id for token in next_token(bigram(TABLE), [1]).tokens] == [1]


def test_it_is_what_generate_draws_from(bible):
    prompt, decoder = "And God said unto Moses,", us.Sample(us.Temperature(0.7), us.TopP(0.8))
    seen = next_token(bible, prompt, decoders=[decoder], count=10)
    out = us.generate(bible, prompt, decoder, max_new_tokens=1, seed=1, alternatives=10)
    assert [(token.id, math.log(token.p)) for token in seen.tokens] == [
        (token, pytest.approx(logp, abs=1e-5)) for token, logp in out.ranked[0].model
    ]
    (found,) = seen.decoders
    drawn = dict(out.ranked[0].drawn)
    for token, fate, q in zip(seen.tokens, found.fates, found.probabilities, strict=True):
        assert (fate == "kept") == (drawn.get(token.id, -math.inf) > -math.inf)
        assert fate == "cut" or math.log(q) == pytest.approx(drawn[token.id], abs=1e-5)


def test_rules_look_back_at_what_was_chosen(bible):
    prompt = "And God said"
    first = next_token(bible, prompt).tokens[0].id
    seen = next_token(
        bible, prompt, [first, first], [us.Sample(us.BadWords([[first]])), us.Sample(us.Mirostat())]
    )
    assert seen.decoders[0].error is None
    shown = [token.id for token in seen.tokens]
    assert first not in shown or seen.decoders[0].fates[shown.index(first)] == "cut"
    assert seen.decoders[1].kept >= 1


def test_the_end_of_a_text_is_told(bible):
    (end,) = bible.tokenizer.eos_ids
    assert next_token(bible, "And God said", [end]).ended == "eos"


def test_a_decoder_that_cannot_be_shown_says_why_beside_the_others(bible):
    beam, greedy = next_token(bible, "And God", decoders=[us.Beam(2), us.Greedy()]).decoders
    assert "whole texts" in beam.error
    assert beam.fates == ()
    assert greedy.kept == 1


def test_an_encoder_decoder_goes_on_with_its_answer():
    dates = us.load("dates")
    said = us.generate(dates, "May 5th, 1921", us.Greedy()).tokens
    for place in (0, 4):
        assert next_token(dates, "May 5th, 1921", said[:place]).tokens[0].id == said[place]


def test_wrong_tokens_and_full_contexts_are_refused(bible):
    with pytest.raises(ValueError, match="tokens holds token 99999"):
        next_token(bible, "And", [99999])
    with pytest.raises(ValueError, match="context of this model is full"):
        next_token(bible, [5] * 250, [5] * 6)
