import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
import torch

from unspool.arguments import (
    Checked,
    as_bool,
    as_int,
    as_matrix,
    as_number,
    biases,
    flag,
    function_of,
    ids,
    integer,
    items,
    number,
    one_of,
    set_fields,
    shown,
    within,
)
from unspool.decode.search import Greedy
from unspool.decode.transforms import TopP
from unspool.testing import random_table


@dataclass(frozen=True)
class Rule:
    p: object = 0.5


@dataclass(frozen=True)
class CheckedRule(Checked):
    p: float = number(0.5, at_least=0, advice="Mend it.")
    k: int | None = integer(None, at_least=0, advice="Mend it.")
    on: bool = flag(True, advice="Mend it.")


def test_number_accepts_what_lies_within_the_bounds():
    assert as_number("TopP.p", 1, above=0, at_most=1, advice="-") == 1
    half = as_number("TopP.p", np.float32(0.5), above=0, at_most=1, advice="-")
    assert (type(half), half) == (float, 0.5)
    assert as_number("MinP.m", 0, at_least=0, at_most=1, advice="-") == 0
    assert as_number("X.y", -5.5, advice="-") == -5.5
    for one in (Fraction(1), np.array(1.0), torch.tensor(1.0)):
        assert as_number("X.y", one, above=0) == 1


@pytest.mark.parametrize("value", [0, -0.1, 1.0001, math.nan, math.inf, -math.inf])
def test_number_names_the_value_the_range_and_the_way_out(value):
    with pytest.raises(
        ValueError, match=r"TopP\.p is .*, but must be a finite number, 0 < p ≤ 1\. Use Greedy\."
    ):
        as_number("TopP.p", value, above=0, at_most=1, advice="Use Greedy.")


def test_number_without_bounds_still_refuses_infinity():
    with pytest.raises(ValueError, match=r"must be a finite number\. Mend it\."):
        as_number("X.y", math.inf, advice="Mend it.")


@pytest.mark.parametrize("value", ["0.9", None, True, [0.9], 1j, np.array([1.0]), np.array("x")])
def test_number_refuses_what_is_no_number(value):
    with pytest.raises(TypeError, match=r"TopP\.p is .* must be a number"):
        as_number("TopP.p", value, above=0, advice="-")


def test_as_int_accepts_every_type_of_integer():
    assert as_int("TopK.k", 1, at_least=1, advice="-") == 1
    seven = as_int("TopK.k", np.int64(7), at_least=1, advice="-")
    assert (type(seven), seven) == (int, 7)


def test_as_int_refuses_small_and_fractional_values():
    with pytest.raises(ValueError, match=r"TopK\.k is 0, but must be a whole number ≥ 1\. Leave it out\."):
        as_int("TopK.k", 0, at_least=1, advice="Leave it out.")
    for value in (1.5, 2.0, "3", None, True):
        with pytest.raises(TypeError, match="whole number"):
            as_int("TopK.k", value, at_least=1, advice="-")


def test_flag_refuses_truthy_values():
    assert as_bool("Rule.p", True, advice="-")
    with pytest.raises(TypeError, match=r"Rule\.p is 1, but must be True or False"):
        as_bool("Rule.p", 1, advice="-")


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


@pytest.mark.parametrize(
    ("name", "given", "kept"),
    [
        ("p", np.float32(0.5), 0.5),
        ("p", np.float64(0.1), 0.1),
        ("p", Fraction(1, 4), 0.25),
        ("p", np.int16(3), 3),
        ("k", np.int64(3), 3),
        ("k", None, None),
    ],
)
def test_a_field_is_kept_as_a_number_of_python(name, given, kept):
    value = getattr(CheckedRule(**{name: given}), name)
    assert (value, type(value)) == (kept, type(kept))


def test_a_field_is_named_with_its_technique():
    with pytest.raises(ValueError, match=r"CheckedRule\.k is -1, but must be a whole number ≥ 0\. Mend it\."):
        CheckedRule(k=-1)
    with pytest.raises(TypeError, match=r"CheckedRule\.p is '1', but must be a number\. Mend it\."):
        CheckedRule(p="1")
    with pytest.raises(TypeError, match=r"CheckedRule\.on is 1, but must be True or False\. Mend it\."):
        CheckedRule(on=1)


def test_numbers_beyond_all_reason_are_refused():
    with pytest.raises(ValueError, match="must be a finite number"):
        as_number("X.y", 10**400, advice="-")
    with pytest.raises(ValueError, match="more than 1,000,000,000,000"):
        as_int("X.y", 10**400, at_least=0, advice="-")


def test_the_repr_of_a_value_in_a_message_is_short():
    assert shown(0.5) == "0.5"
    assert len(shown("a" * 1000)) == 80
    assert shown("a" * 1000).endswith("…")
    assert shown(10**5000) == "a int"  # Python refuses to print it
    assert shown(torch.nn.Sequential(torch.nn.Linear(2, 2))) == "a Sequential"


def test_a_frozen_technique_keeps_what_was_checked():
    rule = Rule()
    set_fields(rule, p=3)
    assert rule == Rule(3)


@pytest.mark.parametrize(
    ("value", "count", "is_one"),
    [
        (lambda a, b: None, 2, True),
        (lambda *a: None, 2, True),
        (lambda a: None, 2, False),
        (max, 2, True),
        (torch.nn.Linear(2, 2), 1, True),
        (torch.nn.Linear(2, 2), 2, False),
        (TopP(0.9), 3, True),
        (TopP(0.9), 2, False),
        (TopP, 3, False),
        (Greedy(), 2, False),
        (random_table(3, 1), 1, False),
        (None, 0, False),
    ],
)
def test_what_can_be_called_with_as_many_arguments(value, count, is_one):
    assert function_of(value, count) is is_one


def test_a_word_is_one_of_the_choices():
    one_of("mean", "a", ("a", "b"))
    for value in ("c", None, ["a"], np.array(["a", "b"])):
        with pytest.raises(ValueError, match=r"mean is .*, but must be one of 'a', 'b'"):
            one_of("mean", value, ("b", "a"))


def test_items_of_any_collection_but_a_string():
    assert items("x", [1, 2], "a list") == items("x", np.array([1, 2]), "a list") == (1, 2)
    assert items("x", torch.tensor([0.5]), "a list") == (0.5,)
    assert items("x", iter("ab"), "a list") == ("a", "b")
    for value in ("ab", b"ab", {}, None, 3, np.array(3), list):
        with pytest.raises(TypeError, match=r"x is .*, but must be a list"):
            items("x", value, "a list")


def test_arrays_of_ids_are_ids():
    assert ids("eos", np.array([3, 1])) == ids("eos", torch.tensor([3, 1])) == (3, 1)
    assert ids("eos", np.array(3)) == ids("eos", torch.tensor(3)) == (3,)
    for value in (torch.tensor([0.5]), torch.tensor(True), b"ab", {"a": 1}):
        with pytest.raises(TypeError, match="eos"):
            ids("eos", value)


def test_matrices_are_tensors_of_real_numbers_with_a_row():
    assert as_matrix("p", torch.zeros(2, 3), "(C, V)").shape == (2, 3)
    for value in (None, [[1.0]], np.zeros((2, 3)), torch.zeros(2, 3, dtype=torch.complex64)):
        with pytest.raises(TypeError, match=r"p is .*, but must be a tensor of shape \(C, V\)"):
            as_matrix("p", value, "(C, V)")
    for value in (torch.zeros(3), torch.zeros(0, 3), torch.zeros(1, 2, 3)):
        with pytest.raises(ValueError, match=r"p has shape .*, but must be a tensor of shape \(C, V\)"):
            as_matrix("p", value, "(C, V)")
