import math

import numpy as np
import pytest

from unspool.decode.transforms.arguments import biases, flag, ids, number, whole, within


def test_number_accepts_what_lies_within_the_bounds():
    number("TopP.p", 1, above=0, at_most=1, advice="-")
    number("TopP.p", np.float32(0.5), above=0, at_most=1, advice="-")
    number("MinP.m", 0, at_least=0, at_most=1, advice="-")
    number("X.y", -5.5, advice="-")


@pytest.mark.parametrize("value", [0, -0.1, 1.0001, math.nan, math.inf, -math.inf])
def test_number_names_the_value_the_range_and_the_way_out(value):
    with pytest.raises(
        ValueError, match=r"TopP\.p is .*, but must be a finite number, 0 < p ≤ 1\. Use Greedy\."
    ):
        number("TopP.p", value, above=0, at_most=1, advice="Use Greedy.")


def test_number_without_bounds_still_refuses_infinity():
    with pytest.raises(ValueError, match=r"must be a finite number\. Mend it\."):
        number("X.y", math.inf, advice="Mend it.")


@pytest.mark.parametrize("value", ["0.9", None, True, [0.9]])
def test_number_refuses_what_is_no_number(value):
    with pytest.raises(TypeError, match=r"TopP\.p is .* must be a number"):
        number("TopP.p", value, above=0, advice="-")


def test_whole_accepts_integers_of_any_make():
    whole("TopK.k", 1, at_least=1, advice="-")
    whole("TopK.k", np.int64(7), at_least=1, advice="-")


def test_whole_refuses_small_and_fractional_values():
    with pytest.raises(ValueError, match=r"TopK\.k is 0, but must be a whole number ≥ 1\. Leave it out\."):
        whole("TopK.k", 0, at_least=1, advice="Leave it out.")
    for value in (1.5, 2.0, "3", None, True):
        with pytest.raises(TypeError, match="whole number"):
            whole("TopK.k", value, at_least=1, advice="-")


def test_flag_refuses_truthy_values():
    flag("PLess.norm", True, advice="-")
    with pytest.raises(TypeError, match=r"PLess\.norm is 1, but must be True or False"):
        flag("PLess.norm", 1, advice="-")


def test_ids_make_a_tuple_of_one_or_many():
    assert ids("eos", 3) == (3,)
    assert ids("eos", [3, np.int64(1)]) == (3, 1)
    assert ids("eos", (), empty=True) == ()


@pytest.mark.parametrize(
    ("value", "error"), [((), ValueError), (-1, ValueError), ([1.5], TypeError), ("a", TypeError)]
)
def test_ids_refuse_what_is_no_token(value, error):
    with pytest.raises(error, match="eos"):
        ids("eos", value)


def test_biases_are_sorted_pairs_however_they_were_written():
    wanted = (((1,), 2.0), ((1, 2), -3.0), ((5,), 0.5))
    assert biases("b", {(5,): 0.5, (1, 2): -3, (1,): 2}) == wanted
    assert biases("b", [([1, 2], -3.0), ([5], 0.5), ([1], 2.0)]) == wanted
    assert biases("b", wanted) == wanted


@pytest.mark.parametrize("value", [{}, {(1,): math.inf}, {(1,): -math.inf}, {(1,): math.nan}, {(): 1.0}])
def test_biases_refuse_the_empty_and_the_infinite(value):
    with pytest.raises(ValueError, match="b"):
        biases("b", value)


def test_biases_refuse_one_sequence_twice():
    with pytest.raises(ValueError, match="twice"):
        biases("b", [([1], 1.0), ((1,), 2.0)])


def test_within_names_the_ids_and_the_width():
    within("eos", [0, 4], 5)
    with pytest.raises(ValueError, match=r"eos holds the token ids \[5, 9\], but the scores have 5 columns"):
        within("eos", [9, 0, 5], 5)
