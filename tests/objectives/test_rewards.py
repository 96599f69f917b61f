import sys
from types import ModuleType

import numpy as np
import pytest
import torch

from unspool.objectives.expected_reward import (
    REWARDS,
    bleu,
    check_reward_name,
    chrf,
    exact_match,
    load_reward,
)


def test_by_hand():
    assert (exact_match("a b", "a b"), exact_match("a", "a b")) == (1.0, 0.0)
    # All three words are right, and all n-grams up to 3 of "a b c": only the length is short by one.
    assert bleu("a b c", "a b c d") == pytest.approx(2.718281828 ** (1 - 4 / 3), rel=1e-6)
    assert chrf("ab", "ab") == pytest.approx(1.0)


@pytest.mark.parametrize("name", REWARDS)
def test_the_right_text_is_worth_most(name):
    reward = load_reward(name)
    assert reward("the cat sat down", "the cat sat down") == pytest.approx(1.0)
    assert 0.0 <= reward("a dog", "the cat sat down") < 1.0


@pytest.fixture
def mine(monkeypatch):
    module = ModuleType("my_rewards")
    monkeypatch.setitem(sys.modules, "my_rewards", module)
    return module


def test_a_function_of_ones_own(mine):
    mine.longer = lambda said, reference: len(said) - len(reference)
    assert load_reward("my_rewards:longer")("abcd", "a") == 3.0


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda said, reference: 1 / 0,
            "'my_rewards:it' failed with ZeroDivisionError: .*for 'x' with the reference 'y'",
        ),
        (lambda said, reference: float("nan"), "'my_rewards:it' is nan, but must be a finite number"),
        (lambda said, reference: "0.5", "'my_rewards:it' is '0.5', but must be a finite number"),
        (lambda said, reference: None, "'my_rewards:it' is None, but must be a finite number"),
        (lambda said: 1.0, "failed with TypeError"),
        (lambda said, reference: sys.exit(0), "failed with SystemExit: 0"),
        (lambda said, reference: "".join([1]), "failed with TypeError"),
        (lambda said, reference: exec("raise KeyError('a\\n' * 999)"), r"failed with KeyError: .{1,190}… \("),
    ],
)
def test_its_mistakes_are_told_in_one_line(mine, function, message):
    mine.it = function
    with pytest.raises(ValueError, match=message) as caught:
        load_reward("my_rewards:it")("x", "y")
    assert "\n" not in str(caught.value)


def test_long_texts_are_told_by_their_beginning(mine):
    mine.it = lambda said, reference: None
    with pytest.raises(ValueError, match=r"\(for 'x{59} with the reference 'y'\)"):
        load_reward("my_rewards:it")("x" * 99, "y")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("blue", "did you mean 'bleu'.*module:function"),
        ("no_such_module:f", "cannot import the module"),
        ("my_rewards:lost", "does not define 'lost'"),
        ("my_rewards:number", "must be a function"),
        ("../my_rewards:it", "is not a known reward.*module:function"),
        ("my_rewards:it:again", "is not a known reward"),
        ("", "is not a known reward"),
    ],
)
def test_a_reward_that_is_not_there_is_refused(mine, name, message):
    mine.number = 7
    with pytest.raises(ValueError, match=message):
        load_reward(name)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = (", "importing .* failed with SyntaxError"),
        ("import sys; sys.exit(0)", "importing .* failed with SystemExit: 0"),
        ("None.x", "importing .* failed with AttributeError"),
        ("import no_such_module", "cannot import the module .*no_such_module"),
    ],
)
def test_a_module_that_cannot_be_imported_is_refused(tmp_path, monkeypatch, source, message):
    (tmp_path / "broken_rewards.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=message):
        load_reward("broken_rewards:it")


def test_numbers_of_numpy_and_torch_are_numbers(mine):
    for number in (np.float32(0.5), np.array(0.5), torch.tensor(0.5), True, 1):
        mine.it = lambda said, reference, number=number: number
        assert load_reward("my_rewards:it")("x", "y") == float(number)


def test_a_recipe_that_is_only_read_imports_nothing():
    check_reward_name("no_such_module:f")
