from math import log

import pytest
import torch
from hypothesis import given, strategies as st

from unspool.evaluate.diversity import distinct_n, ngrams, rep_n, seq_rep_n, zipf_coefficient

texts = st.lists(st.integers(0, 3), max_size=24)


def test_rep_n_by_hand():
    # bigrams of a b a b a: ab ba ab ba → 2 unique of 4
    assert rep_n("ababa", 2) == 1 - 2 / 4
    assert rep_n("abcde", 2) == 0
    # 4-grams of aaaaaa: three, all the same
    assert rep_n("aaaaaa") == pytest.approx(1 - 1 / 3)


def test_a_text_without_ngrams_repeats_nothing():
    assert rep_n("abc", 4) == 0
    assert rep_n([], 1) == 0


def test_seq_rep_n_is_the_mean_over_texts_and_not_the_pooled_share():
    assert seq_rep_n(["ababa", "abcde", "ab"], 2) == pytest.approx((0.5 + 0 + 0) / 3)


def test_distinct_n_divides_by_tokens_as_in_the_paper():
    # bigrams ab ba ab | ab bc → ab ba bc; 4 + 3 tokens
    assert distinct_n(["abab", "abc"], 2) == 3 / 7
    assert distinct_n(["abab", "abc"], 1) == 3 / 7
    assert distinct_n(["aaaa"], 1) == 1 / 4
    assert distinct_n([[]], 1) == 0


def test_zipf_of_an_exact_power_law_is_its_exponent():
    # counts 8, 4 at ranks 1, 2: slope log(4/8)/log 2 = −1
    assert zipf_coefficient(["a" * 8 + "b" * 4]) == pytest.approx(1)
    assert zipf_coefficient(["a" * 144 + "b" * 36 + "c" * 16 + "d" * 9]) == pytest.approx(2)


def test_zipf_by_hand_on_three_counts():
    # ranks 1 2 3, counts 4 2 2
    x, y = [0, log(2), log(3)], [log(4), log(2), log(2)]
    mx, my = sum(x) / 3, sum(y) / 3
    slope = sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True)) / sum((a - mx) ** 2 for a in x)
    assert zipf_coefficient(["abac", "abca"]) == pytest.approx(-slope)


def test_equal_counts_have_zipf_zero():
    assert zipf_coefficient(["abc", "cab"]) == pytest.approx(0)


def test_nothing_to_measure_is_an_error():
    with pytest.raises(ValueError, match="at least one"):
        seq_rep_n([])
    with pytest.raises(ValueError, match="at least one"):
        distinct_n([])
    with pytest.raises(ValueError, match="two different tokens"):
        zipf_coefficient(["aaa"])
    with pytest.raises(ValueError, match="whole number ≥ 1"):
        ngrams("abc", 0)


@given(texts, st.integers(1, 5))
def test_shares_stay_in_range_and_agree(tokens, n):
    assert 0 <= rep_n(tokens, n) < 1
    assert 0 <= distinct_n([tokens], n) <= 1
    grams = ngrams(tokens, n)
    assert round((1 - rep_n(tokens, n)) * len(grams)) == round(distinct_n([tokens], n) * len(tokens))


@pytest.mark.parametrize("measure", [distinct_n, seq_rep_n, zipf_coefficient])
def test_letters_are_not_taken_for_texts(measure):
    with pytest.raises(TypeError, match="texts is 'hello', but must be a list of texts"):
        measure("hello")
    with pytest.raises(TypeError, match=r"texts 0 is 1, but must be a list of tokens or a string"):
        measure([1, 2, 3])
    with pytest.raises(TypeError, match="texts is None, but must be a list of texts"):
        measure(None)
    with pytest.raises(ValueError, match="at least one"):
        measure([])


def test_tensors_raise_because_their_elements_do_not_compare():
    with pytest.raises(TypeError, match=r"must be a list of tokens or a string"):
        distinct_n([torch.tensor([1, 1, 1])])
    with pytest.raises(TypeError, match="must be a list of tokens"):
        rep_n(torch.tensor([1, 1, 1]))


@pytest.mark.parametrize("n", [0, -1, 1.5, "2", None])
def test_n_is_a_whole_number(n):
    with pytest.raises((TypeError, ValueError), match="whole number ≥ 1"):
        ngrams("abc", n)


def test_distinct_n_of_each_text_does_not_fall_with_the_number_of_texts():
    assert distinct_n(["abab", "abc"], 1, level="text") == (2 / 4 + 3 / 3) / 2
    few, many = (["abcd"] * count for count in (1, 10))
    assert distinct_n(few, 2, level="text") == distinct_n(many, 2, level="text") == 3 / 4
    assert distinct_n(many, 2) == 3 / 40
    with pytest.raises(ValueError, match="one of 'corpus', 'text'"):
        distinct_n(["ab"], 1, level="texts")


def test_zipf_is_fitted_to_the_most_frequent_tokens():
    # 5,000 tokens follow frequency = 1e6 / rank; then come 20,000 that occur once.
    text = [rank for rank in range(1, 5001) for _ in range(1_000_000 // rank // 200 + 1)]
    tail = list(range(10_000, 30_000))
    assert zipf_coefficient([text + tail]) == pytest.approx(zipf_coefficient([text]))
