from math import exp, inf, log

import pytest

import unspool as us
from unspool.evaluate.teacher_forcing import perplexity
from unspool.testing import TableModel, bigram

ROWS = [[0.5, 0.25, 0.25], [0.1, 0.8, 0.1], [0.0, 1.0, 0.0]]


def test_by_hand():
    # 0→1: ¼, 1→1: 0.8, 1→0: 0.1      and      2→1: 1
    found = perplexity(bigram(ROWS), [[0, 1, 1, 0], [2, 1]])
    assert found.tokens == 4
    assert found.nats == pytest.approx(-log(0.25 * 0.8 * 0.1))
    assert found.value == pytest.approx((0.25 * 0.8 * 0.1) ** (-1 / 4))
    assert found.by_text == pytest.approx(((0.25 * 0.8 * 0.1) ** (-1 / 3), 1.0))


def test_long_texts_weigh_more():
    found = perplexity(bigram(ROWS), [[0, 0], [1, 1, 1, 1]])
    assert found.value == pytest.approx(exp(-(log(0.5) + 3 * log(0.8)) / 4))


def test_a_uniform_model_wavers_between_all_tokens_whatever_the_windows():
    model = TableModel(lambda row: [0.25] * 4)
    for context, stride in ((None, None), (2, 1), (5, 3)):
        assert perplexity(
            model, [[0, 1, 2, 3, 0, 1, 2]], context=context, stride=stride
        ).value == pytest.approx(4)


def test_a_longer_context_helps_a_model_that_uses_it():
    # Sure of token 0 once it has seen three tokens.
    model = TableModel(lambda row: [1.0, 0.0] if len(row) >= 3 else [0.5, 0.5])
    row = [0] * 9
    values = [perplexity(model, [row], context=4, stride=s).value for s in (1, 2, 3)]
    # Windows of 4 with stride 1: only the first two tokens scored have fewer than three before them.
    assert values[0] == pytest.approx(2 ** (2 / 8))
    assert values[0] < values[1] < values[2]


def test_an_impossible_token_makes_it_infinite():
    assert perplexity(bigram(ROWS), [[2, 0]]).value == inf


def test_an_encoder_decoder_needs_the_sources_of_its_targets():
    model = us.load("dates")
    right = perplexity(model, ["1921-05-05"], ["the 5th of May, 1921"])
    wrong = perplexity(model, ["1921-05-05"], ["the 6th of July, 1830"])
    assert right.tokens == len(model.tokenizer.encode("1921-05-05")) + 1  # the end of the text, too
    assert right.value < 1.1 < 2 < wrong.value
    with pytest.raises(ValueError, match="give sources"):
        perplexity(model, ["1921-05-05"])


def test_an_invalid_text_raises():
    for texts in ("abc", [], None, 5, b"abc"):
        with pytest.raises((TypeError, ValueError), match="texts is "):
            perplexity(bigram(ROWS), texts)
    with pytest.raises(ValueError, match="outside the model's vocabulary"):
        perplexity(bigram(ROWS), [[0, 9]])
