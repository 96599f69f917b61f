from __future__ import annotations

import math
from itertools import pairwise, product
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from unspool.data.known_languages import SenseChain

BANK, CASH, FISH = 4, 5, 6
SENSES = SenseChain()


@pytest.fixture
def bank():
    """bank (money, river), cash, fish: senses 0, 1, 2, 3. Money follows money, and the river the river."""
    language = SenseChain(word_count=3, topics=2, most_senses=2, near=2, far=1, stop=0.5)
    language.__dict__["_senses"] = (np.array([BANK, BANK, CASH, FISH]), np.array([0, 1, 0, 1]))
    following = np.array([[0, 2, 1], [1, 3, 0], [0, 2, 1], [1, 3, 0]])
    language.__dict__["_following"] = (following, np.tile([0.6, 0.2, 0.2], (4, 1)))
    return language


def belief_of(language, prefix):
    """The probability of each sense of the last word."""
    state = language.state(prefix)
    belief = np.zeros(len(language.forms))
    belief[state.senses] = state.probabilities
    return belief


def test_by_hand(bank):
    # The first word may be either bank (1/4 + 1/4), cash or fish.
    assert bank.next(()).tolist() == [0, 0, 0, 0, 1 / 2, 1 / 4, 1 / 4]
    # After "bank" both senses are alike: each is followed by a bank with 0.8, and half of the time by nothing.
    assert belief_of(bank, [BANK]).tolist() == [1 / 2, 1 / 2, 0, 0]
    assert bank.next([BANK]).tolist() == pytest.approx([0, 0, 1 / 2, 0, 0.4, 0.05, 0.05])
    # After "cash", money is three times as probable as the river; then cash follows three times as often as fish.
    assert belief_of(bank, [CASH, BANK]).tolist() == pytest.approx([3 / 4, 1 / 4, 0, 0])
    assert bank.next([CASH, BANK]).tolist() == pytest.approx([0, 0, 1 / 2, 0, 0.4, 0.075, 0.025])
    assert bank.log_prob([CASH, BANK, FISH]) == pytest.approx(math.log(1 / 4 * 0.4 * 0.025 * 0.5))


def brute_force(language, sentence):
    """p(sentence): every chain of senses that is heard as it, one by one."""
    following, probabilities = language._following
    total = 0.0
    for chain in product(
        *([s for s, form in enumerate(language.forms) if form == word] for word in sentence)
    ):
        chance = 1 / len(language.forms)
        for here, there in pairwise(chain):
            step = sum(c for s, c in zip(following[here], probabilities[here], strict=True) if s == there)
            chance *= (1 - language.stop) * step
        total += chance * language.stop
    return total


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10**6), st.integers(0, 5))
def test_the_forward_algorithm_is_the_sum_over_all_chains(seed, kind):
    language = SenseChain(
        word_count=12, topics=4, most_senses=4, near=3, far=2, drift=0.3, stop=0.3, seed=kind
    )
    sentence = language.sample(Random(seed))[:4]
    assert math.exp(language.log_prob(sentence)) == pytest.approx(brute_force(language, sentence), rel=1e-9)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10**6))
def test_belief_is_in_senses_of_the_last_word(seed):
    language = SENSES
    sentence = language.sample(Random(seed))
    belief = belief_of(language, sentence)
    assert belief.sum() == pytest.approx(1.0)
    assert set(language.forms[belief > 0]) == {sentence[-1]}


def test_belief_is_calibrated():
    # Among all last words of two senses and more, the sense that was meant has the probability that is believed.
    language, random = SenseChain(word_count=30, topics=4, stop=0.3), Random(4)
    believed, meant = [], []
    for _ in range(3000):
        chain = language.sample_senses(random)
        belief = belief_of(language, [int(language.forms[sense]) for sense in chain])
        guess = int(belief.argmax())
        believed.append(belief[guess])
        meant.append(guess == chain[-1])
    spread = math.sqrt(sum(b * (1 - b) for b in believed))
    assert abs(sum(meant) - sum(believed)) < 4 * spread
    assert 0.5 < np.mean(meant) < 0.99


def test_senses_of_a_word_are_in_different_topics():
    language = SenseChain(word_count=300)
    assert set(language.topic_of) == set(range(8))
    counts = np.bincount(language.forms)[4:]
    assert set(counts) == {1, 2, 3, 4}
    pairs = set(zip(language.forms.tolist(), language.topic_of.tolist(), strict=True))
    assert len(pairs) == len(language.forms)


def test_the_topic_is_left_as_often_as_drift_says():
    language, random = SenseChain(drift=0.2), Random(5)
    chains = [language.sample_senses(random) for _ in range(2000)]
    steps = [(a, b) for chain in chains for a, b in pairwise(chain)]
    left = np.mean([language.topic_of[a] != language.topic_of[b] for a, b in steps])
    assert abs(left - 0.2) < 4 * math.sqrt(0.2 * 0.8 / len(steps))


def test_what_followed_before_tells_the_sense(bank):
    # The same word, two histories: what comes next is told by the history.
    after_cash, after_fish = bank.next([CASH, BANK]), bank.next([FISH, BANK])
    assert after_cash[CASH] > after_cash[FISH]
    assert after_fish[FISH] > after_fish[CASH]


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"word_count": 0}, "word_count is 0"),
        ({"topics": 3}, "most_senses is 4, .* 3 topics"),
        ({"word_count": 7}, "7 words cannot fill 8 topics"),
        ({"drift": 1.0}, "drift is 1.0"),
        ({"stop": 0.0}, "no sentence would end"),
        ({"decay": -1.0}, "decay is -1"),
    ],
)
def test_nonsense_is_refused(settings, match):
    with pytest.raises(ValueError, match=match):
        SenseChain(**settings)
