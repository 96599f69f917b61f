from math import isnan

import pytest

from unspool.decode.output import Output
from unspool.evaluate.comparison import DecoderRow, loop_period, loops_approximately, measures


def output(text, tokens, logps, finish_reason="length"):
    return Output(text, tokens, logps, logps, finish_reason, seed=0)


def answer(text, logp=-1.0):
    return output(text, tuple(map(ord, text)), (logp,) * len(text))


LOOP, FINE = answer("xabababab", -0.5), answer("abcde", -2.0)


def test_the_measures_of_one_answer():
    # 4-grams of xabababab: xaba abab baba abab baba abab → 3 unique of 6
    assert measures(LOOP) == {
        "mean_logp": -0.5,
        "rep_4": 0.5,
        "distinct_1": 3 / 9,
        "distinct_2": 3 / 9,  # xa ab ba
        "length": 9,
    }
    assert (loop_period(LOOP), loops_approximately(LOOP), loop_period(FINE)) == (2, False, None)


def test_a_loop_that_the_model_ended_is_a_loop():
    tokens, logps = (*LOOP.tokens, 0), (*LOOP.logps, -1.0)
    assert loop_period(output("xababab", tokens, logps, "eos")) == 2
    assert loop_period(output("xababab", tokens, logps)) is None
    assert loop_period(output("", (0,), (-1.0,), "eos")) is None


def test_a_row_pools_tokens_and_averages_repetition():
    assert DecoderRow("d", "D()", (LOOP, FINE), seconds=2.0).speed == 7
    assert measures(LOOP, FINE) == {
        "mean_logp": pytest.approx((9 * -0.5 + 5 * -2) / 14),
        "rep_4": 0.25,
        "distinct_1": pytest.approx(6 / 14),
        "distinct_2": pytest.approx(6 / 14),  # xa ab ba | ab bc cd de
        "length": 7,
    }


@pytest.mark.parametrize(
    ("answers", "words"), [((LOOP,), "2"), ((FINE,), "–"), ((LOOP, FINE), "1/2"), ((LOOP, LOOP), "2/2")]
)
def test_loops_in_few_words(answers, words):
    assert DecoderRow("d", "D()", answers, 1.0).loop_words == words


def test_an_empty_answer_has_no_log_probability():
    mean_logp, *others = measures(answer("")).values()
    assert isnan(mean_logp)
    assert others == [0] * 4
    assert DecoderRow("d", "D()", (answer(""),), 1.0).cells()[0] == "nan"


def test_answers_that_nearly_repeat_are_marked():
    numbered = " ".join(f"{n}. Wash the dishes and dry them." for n in range(12))
    near = output(numbered, tuple(range(90)), (-1.0,) * 90)
    plain = output("c d", (1, 2), (-1.0, -1.0), "eos")
    assert loops_approximately(near)
    assert DecoderRow("x", "Greedy()", (near,), 1.0).loop_words == "≈"
    assert DecoderRow("x", "Greedy()", (near, plain), 1.0).loop_words == "0/2 +1≈"
