import sys
from types import ModuleType

import pytest

from unspool.objectives.rewards import REWARDS, bleu, check_name, chrf, exact_match, reward_of


def test_by_hand():
    assert (exact_match("a b", "a b"), exact_match("a", "a b")) == (1.0, 0.0)
    # All three words are right, and all n-grams up to 3 of "a b c": only the length is short by one.
    assert bleu("a b c", "a b c d") == pytest.approx(2.718281828 ** (1 - 4 / 3), rel=1e-6)
    assert chrf("ab", "ab") == pytest.approx(1.0)


@pytest.mark.parametrize("name", REWARDS)
def test_the_right_text_is_worth_most(name):
    reward = reward_of(name)
    assert reward("the cat sat down", "the cat sat down") == pytest.approx(1.0)
    assert 0.0 <= reward("a dog", "the cat sat down") < 1.0


@pytest.fixture
def mine(monkeypatch):
    module = ModuleType("my_rewards")
    monkeypatch.setitem(sys.modules, "my_rewards", module)
    return module


def test_a_function_of_ones_own(mine):
    mine.longer = lambda said, wanted: len(said) - len(wanted)
    assert reward_of("my_rewards:longer")("abcd", "a") == 3.0


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda said, wanted: 1 / 0, "'my_rewards:it' failed with ZeroDivisionError: .*said 'x' where 'y'"),
        (lambda said, wanted: float("nan"), "'my_rewards:it' is nan, but must be a finite number"),
        (lambda said, wanted: "much", "failed with ValueError"),
    ],
)
def test_its_mistakes_are_told_in_one_line(mine, function, message):
    mine.it = function
    with pytest.raises(ValueError, match=message) as caught:
        reward_of("my_rewards:it")("x", "y")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("blue", "did you mean 'bleu'.*module:function"),
        ("no_such_module:f", "cannot be imported"),
        ("my_rewards:lost", "has no 'lost'"),
        ("my_rewards:number", "must be a function"),
    ],
)
def test_a_reward_that_is_not_there_is_refused(mine, name, message):
    mine.number = 7
    with pytest.raises(ValueError, match=message):
        reward_of(name)


def test_a_recipe_that_is_only_read_imports_nothing():
    check_name("no_such_module:f")
