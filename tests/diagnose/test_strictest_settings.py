from math import inf

import numpy as np
import pytest
from hypothesis import given, strategies as st

from unspool.diagnose.matched_thresholds import Criterion, StrictestSettings, share_interval

EPSILON = Criterion("epsilon", "Sample(Epsilon({}))", loosest=0.0)
TOP_P = Criterion("top-p", "Sample(TopP({}))", loosest=1.0)
TOP_K = Criterion("top-k", "Sample(TopK({}))", loosest=inf, is_integer=True)
KAPPA = Criterion("kappa", "Sample(Kappa({}, 3))", loosest=0.0)


def match(criterion, criticals, share):
    first = StrictestSettings(criterion, [share], len(criticals))
    first.extend(criticals)
    return first.match(share)


def test_by_hand():
    # ε rejects what is less probable: one of five lies below the midpoint of 0.1 and 0.3
    found = match(EPSILON, [0.5, 0.1, 0.3, 0.7, 0.9], 0.2)
    assert found.setting == pytest.approx(0.2)
    assert found.rejected == 0.2
    assert found.decoder == "Sample(Epsilon(0.2))"
    # top-p rejects what has more before it
    assert match(TOP_P, [0.0, 0.2, 0.4, 0.8, 0.9], 0.4).setting == pytest.approx(0.6)
    assert match(TOP_K, [1, 1, 2, 7, 30], 0.2).decoder == "Sample(TopK(7))"


def test_equal_tokens_are_rejected_together_or_not_at_all():
    found = match(EPSILON, [0.1, 0.2, 0.2, 0.2, 0.5], 0.6)
    assert (found.rejected, found.setting) == (0.2, pytest.approx(0.15))


def test_a_share_of_less_than_one_token_rejects_nothing():
    assert match(EPSILON, [0.1, 0.2], 0.3).rejected == 0
    assert 0 < match(EPSILON, [0.1, 0.2], 0.3).setting < 0.1
    assert 0.9 < match(TOP_P, [0.1, 0.9], 0.0).setting < 1
    assert match(TOP_K, [3, 9], 0.0).setting == 9


def test_tokens_that_survive_everything_are_never_rejected():
    found = match(KAPPA, [0.5, inf, inf, inf], 0.75)
    assert found.rejected == 0.25
    assert 0.5 < found.setting < inf
    assert match(KAPPA, [inf, inf], 0.5).setting < inf


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_a_share_is_a_share(share):
    with pytest.raises(ValueError, match="share is"):
        StrictestSettings(EPSILON, [share], 10)


@given(
    st.lists(st.integers(0, 1000).map(lambda x: x / 1000), min_size=1, max_size=60),
    st.floats(0, 0.99),
    st.sampled_from([EPSILON, TOP_P]),
)
def test_at_most_the_share_is_rejected_and_counted_right(criticals, share, criterion):
    found = match(criterion, criticals, share)
    gone = [c < found.setting if criterion.is_rising else c >= found.setting for c in criticals]
    if not (criterion is TOP_P and found.setting == 1):  # p = 1 keeps everything
        assert sum(gone) / len(criticals) == pytest.approx(found.rejected)
    assert found.rejected <= share + 1e-9
    if len(set(criticals)) == len(criticals):
        assert found.rejected * len(criticals) == pytest.approx(int(share * len(criticals) + 1e-9))


@given(st.lists(st.floats(0, 1), min_size=20, max_size=60))
def test_unneeded_settings_do_not_change_the_match(criticals):
    whole, part = (StrictestSettings(EPSILON, [0.1], len(criticals)) for _ in range(2))
    whole.extend(criticals)
    for critical in criticals:
        part.extend([critical if part.needs(critical) else 1.0])
    assert part.match(0.1) == whole.match(0.1)


def test_a_share_has_an_interval_that_covers_it_as_often_as_it_says():
    rng, covered = np.random.default_rng(0), {160: 0, 2000: 0}
    for tokens in covered:
        for _ in range(500):
            low, high = share_interval(int(rng.binomial(tokens, 0.05)), tokens)
            covered[tokens] += low <= 0.05 <= high
    assert all(0.92 * 500 <= count <= 0.985 * 500 for count in covered.values())
    low, high = share_interval(8, 160)
    assert (low, high) == pytest.approx((0.0256, 0.0955), abs=1e-3)  # 160 tokens say little
    assert share_interval(0, 100)[0] == pytest.approx(0, abs=1e-12)
    assert share_interval(100, 100)[1] == pytest.approx(1)


def test_a_match_says_the_interval_of_its_share():
    first = StrictestSettings(EPSILON, [0.1], 100)
    first.extend([(it + 1) / 200 for it in range(100)])
    found = first.match(0.1)
    assert found.rejected == 0.1
    assert (found.low, found.high) == pytest.approx(share_interval(10, 100))
