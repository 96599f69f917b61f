import numpy as np
import pytest

from unspool.basis import BasisTest
from unspool.basis.calibrate import best_threshold, calibrate_kappa, exact_verdicts, fitted


def test_the_best_threshold_by_hand():
    assert best_threshold([(1, False), (2, False), (8, True), (9, True)]) == pytest.approx(4)
    # one mistake is unavoidable: between 4 and 16, or between 1 and 2
    assert best_threshold([(1, False), (2, True), (4, False), (16, True), (20, True)]) in (
        pytest.approx(8),
        pytest.approx(2**0.5),
    )
    assert best_threshold([(3, True)]) == pytest.approx(3)


def test_a_rule_is_fitted_and_measured_on_other_distributions(model):
    test = BasisTest(model.W)
    p = np.stack([model.p(seed, spread=2 + seed % 4) for seed in range(10)])
    found = test.calibrate_kappa(p, (0.03, 0.3), tokens=10)
    assert found.rule.m == test.m
    assert found.rule.thresholds[0] < found.rule.thresholds[1]
    assert found.held_out > 0.9
    assert set(found.held_out_by_tau) == {0.03, 0.3}
    assert all(count > 50 for count in found.counts)
    # half of them were for fitting: those are not what it was measured on
    alone = calibrate_kappa(test, p[:5], (0.03, 0.3), tokens=10, fit=0.99)
    assert alone.counts[1] < alone.counts[0]


def test_a_tau_with_one_kind_of_verdict_gives_no_knot():
    accepted = [(1.0, True), (2.0, True)]
    rule = fitted(3, {0.1: accepted, 0.5: [(1.0, False), (4.0, True)], 0.9: []})
    assert (rule.slopes, rule.thresholds) == ((1.0,), (pytest.approx(2),))
    # where nothing else is known, g is what they bound it by
    assert fitted(3, {0.1: accepted}).thresholds == (1.0,)
    assert fitted(3, {0.1: [(1.0, False), (2.0, False)]}).thresholds == (2.0,)


def test_one_distribution_is_not_enough(model):
    with pytest.raises(ValueError, match="at least two"):
        calibrate_kappa(BasisTest(model.W), model.p(0)[None], (0.1,))
    with pytest.raises(ValueError, match="between 0 and 1"):
        calibrate_kappa(BasisTest(model.W), np.stack([model.p(0)] * 2), (0.1,), fit=1.0)


def test_nothing_below_tau_is_said_clearly():
    test = BasisTest(np.random.default_rng(0).standard_normal((3, 2)))
    with pytest.raises(ValueError, match="nothing to fit on"):
        calibrate_kappa(test, np.full((2, 3), 1 / 3), (0.01,))


@pytest.fixture
def uneven():
    """A matrix with short and long rows, and distributions that know nothing of it."""
    dice = np.random.default_rng(0)
    W = dice.standard_normal((400, 12)) * dice.choice([0.5, 2.0], (400, 1))
    logits = 2 * dice.standard_normal((30, 400))
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    return BasisTest(W), p / p.sum(axis=1, keepdims=True)


def test_with_lengths_the_rule_is_nearer_to_the_test(uneven):
    test, p = uneven
    seen = exact_verdicts(test, p, (0.03, 0.3), tokens=20)
    plain, weighted = (seen.calibrate(lengths=lengths) for lengths in (False, True))
    assert plain.rule.lengths is None
    assert weighted.rule.lengths == test.row_lengths(p[:15])
    assert plain.counts == weighted.counts
    assert weighted.held_out > plain.held_out + 0.02


@pytest.mark.parametrize("lengths", [False, True])
def test_agreement_is_what_the_rule_itself_says(uneven, lengths):
    test, p = uneven
    seen = exact_verdicts(test, p, (0.03, 0.3), tokens=20)
    found = test.calibrate_kappa(p, (0.03, 0.3), tokens=20, lengths=lengths)
    assert found == seen.calibrate(lengths=lengths)
    rows = zip(seen.place_Q, seen.tau_Q, seen.token_Q, seen.accepted_Q, strict=True)
    right = [found.rule.accepts(p[n], i, tau) == verdict for n, tau, i, verdict in rows if n >= 15]
    assert found.held_out == pytest.approx(np.mean(right))
    assert len(right) == found.counts[1]


def test_equal_lengths_change_nothing(model):
    test = BasisTest(model.W, 0)  # only the column of ones is left
    p = np.stack([model.p(seed) for seed in range(4)])
    plain, weighted = (test.calibrate_kappa(p, (0.03, 0.3), lengths=lengths) for lengths in (False, True))
    assert weighted.rule.thresholds == pytest.approx(plain.rule.thresholds)
    assert weighted.held_out_by_tau == plain.held_out_by_tau
