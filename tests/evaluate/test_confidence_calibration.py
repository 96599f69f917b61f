import numpy as np
import pytest
from hypothesis import given, strategies as st

from unspool.evaluate.confidence_calibration import calibration, token_calibration
from unspool.testing import bigram


def test_by_hand():
    # two bins: {0.4 wrong, 0.2 right} and {0.9 right, 0.7 right, 1.0 wrong}
    found = calibration([0.4, 0.2, 0.9, 0.7, 1.0], [False, True, True, True, False], bins=2)
    low, high = found.bins
    assert (low.count, low.confidence, low.accuracy) == (2, pytest.approx(0.3), 0.5)
    assert (high.count, high.confidence, high.accuracy) == (3, pytest.approx(2.6 / 3), pytest.approx(2 / 3))
    assert found.ece == pytest.approx((2 * 0.2 + 3 * 0.2) / 5)
    assert found.worst == pytest.approx(0.2)
    assert found.overconfidence == pytest.approx(0.64 - 0.6)


def test_empty_bins_weigh_nothing():
    found = calibration([1.0, 1.0], [True, True], bins=10)
    assert found.ece == 0
    assert [it.count for it in found.bins] == [0] * 9 + [2]
    assert np.isnan(found.bins[0].accuracy)


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1), st.integers(1, 20))
def test_it_lies_between_the_mean_gap_and_one(choices, bins):
    found = calibration([p for p, _ in choices], [it for _, it in choices], bins=bins)
    assert abs(found.overconfidence) - 1e-9 <= found.ece <= found.worst + 1e-9 <= 1 + 2e-9
    assert sum(it.count for it in found.bins) == len(choices)


def test_of_tokens_by_hand():
    model = bigram([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]])
    # after 0 it says 0 (0.5), after 1 it says 1 (0.8): right in the second and third place of 0 1 1 1
    found = token_calibration(model, [[0, 1, 1, 1]], bins=10)
    assert (found.count, found.accuracy) == (3, pytest.approx(2 / 3))
    assert found.confidence == pytest.approx((0.5 + 0.8 + 0.8) / 3)
    assert found.ece == pytest.approx((0.5 + 0.2 + 0.2) / 3)


def test_a_model_that_speaks_its_own_text_is_calibrated():
    import unspool as us

    model = bigram([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]])
    texts = [us.generate(model, [0], us.Sample(), max_new_tokens=300, seed=seed).tokens for seed in range(30)]
    assert token_calibration(model, texts).ece < 0.02


def drawn(count, seed, shift=0.0, power=1.0):
    """Confidences between 0.1 and 1, each choice right with probability confidence^power − shift."""
    rng = np.random.default_rng(seed)
    p_N = 0.1 + 0.9 * rng.random(count) ** 2
    return p_N.tolist(), (rng.random(count) < p_N**power - shift).tolist()


def test_a_calibrated_sample_is_inside_the_null_interval_and_is_not_called_miscalibrated():
    found = [calibration(*drawn(995, seed)) for seed in range(1000, 1040)]
    assert all(it.ece > 0.012 for it in found)  # never 0, whatever the model
    assert sum(it.null.low <= it.ece <= it.null.high for it in found) >= 35
    words = [it.verdict for it in found]
    assert sum("no miscalibration is seen" in it for it in words) >= 36
    assert not any("well calibrated" in it for it in words)  # 995 tokens cannot show it


def test_an_overconfident_sample_is_outside_the_null_interval():
    found = calibration(*drawn(2000, 1, shift=0.08))
    assert found.ece > found.null.high
    assert found.overconfidence > found.chance
    assert found.verdict.endswith(", overconfident")
    assert calibration(*drawn(2000, 1, shift=-0.08)).verdict.endswith(", underconfident")


def test_many_calibrated_tokens_are_called_well_calibrated():
    assert calibration(*drawn(60_000, 2)).verdict.endswith("well calibrated")


def test_the_null_interval_of_certain_choices_is_zero():
    found = calibration([1.0] * 50, [True] * 50)
    assert (found.null.low, found.null.high, found.chance) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("confidences", "correct", "said"),
    [
        ([], [], "one or more choices"),
        ([0.5], [], "1 confidences"),
        ([1.5], [True], "≤ 1"),
        ([0.5], [1], "True"),
    ],
)
def test_invalid_confidences_raise(confidences, correct, said):
    with pytest.raises((ValueError, TypeError), match=said):
        calibration(confidences, correct)
