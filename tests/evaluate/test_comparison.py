from math import isnan

import pytest

from unspool.evaluate.comparison import Answer, DecoderRow


def answer(text, logp=-1.0):
    return Answer(text, tuple(map(ord, text)), (logp,) * len(text), "length")


LOOP, FINE = answer("xabababab", -0.5), answer("abcde", -2.0)


def test_the_measures_of_one_answer():
    # 4-grams of xabababab: xaba abab baba abab baba abab → 3 unique of 6
    assert LOOP.measures() == {
        "mean_logp": -0.5,
        "rep_4": 0.5,
        "distinct_1": 3 / 9,
        "distinct_2": 3 / 9,  # xa ab ba
        "approximate_loop": False,
        "loop": 2,
        "length": 9,
    }
    assert FINE.loop is None


def test_a_loop_that_the_model_ended_is_a_loop():
    ended = Answer("xababab", (*LOOP.tokens, 0), (*LOOP.logps, -1.0), "eos")
    assert (ended.loop, ended.measures()["length"]) == (2, 10)
    assert Answer("xababab", (*LOOP.tokens, 0), (*LOOP.logps, -1.0), "length").loop is None
    assert Answer("", (0,), (-1.0,), "eos").loop is None


def test_a_row_pools_tokens_and_averages_repetition():
    row = DecoderRow("d", "D()", (LOOP, FINE), seconds=2.0)
    assert row.measures() == {
        "mean_logp": pytest.approx((9 * -0.5 + 5 * -2) / 14),
        "rep_4": 0.25,
        "distinct_1": pytest.approx(6 / 14),
        "distinct_2": pytest.approx(6 / 14),  # xa ab ba | ab bc cd de
        "length": 7,
        "tokens_per_second": 7,
    }
    assert row.loops == [2]


@pytest.mark.parametrize(
    ("answers", "words"), [((LOOP,), "2"), ((FINE,), "–"), ((LOOP, FINE), "1/2"), ((LOOP, LOOP), "2/2")]
)
def test_loops_in_few_words(answers, words):
    assert DecoderRow("d", "D()", answers, 1.0).loop_words == words


def test_an_empty_answer_has_no_log_probability():
    row = DecoderRow("d", "D()", (answer(""),), 1.0)
    mean_logp, *others = row.measures().values()
    assert isnan(mean_logp)
    assert isnan(row.answers[0].mean_logp)
    assert others == [0] * 5


def test_answers_that_nearly_repeat_are_marked():
    numbered = " ".join(f"{n}. Wash the dishes and dry them." for n in range(12))
    near = Answer(numbered, tuple(range(90)), (-1.0,) * 90, "length")
    plain = Answer("c d", (1, 2), (-1.0, -1.0), "eos")
    assert near.measures()["approximate_loop"]
    assert DecoderRow("x", "Greedy()", (near,), 1.0).loop_words == "≈"
    row = DecoderRow("x", "Greedy()", (near, plain), 1.0)
    assert (row.loop_words, row.loops) == ("0/2 +1≈", [])
