from types import SimpleNamespace

import numpy as np
import pytest

from unspool.basis import BasisTest, KappaRule
from unspool.basis.calibration import (
    ExactVerdicts,
    best_threshold,
    collect_verdicts,
)


@pytest.fixture(scope="module")
def uneven():
    """A matrix with short and long rows, and distributions that know nothing of it."""
    rng = np.random.default_rng(0)
    W = rng.standard_normal((400, 12)) * rng.choice([0.5, 2.0], (400, 1))
    logits = 2 * rng.standard_normal((30, 400))
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    return BasisTest(W), p / p.sum(axis=1, keepdims=True)


@pytest.fixture(scope="module")
def seen(uneven):
    return collect_verdicts(*uneven, (0.03, 0.3), tokens=20)


def test_the_best_threshold_by_hand():
    def best(scores, accepted):
        return best_threshold(np.array(scores), np.array(accepted, dtype=bool))

    assert best([1, 2, 8, 9], [0, 0, 1, 1]) == pytest.approx(4)
    # one mistake is unavoidable: between 4 and 16, or between 1 and 2
    assert best([1, 2, 4, 16, 20], [0, 1, 0, 1, 1]) in (pytest.approx(8), pytest.approx(2**0.5))
    assert best([3], [1]) == pytest.approx(3)


def test_a_rule_is_fitted_and_measured_on_other_distributions(model):
    test = BasisTest(model.W)
    p = np.stack([model.p(seed, spread=2 + seed % 4) for seed in range(10)])
    verdicts = collect_verdicts(test, p, (0.03, 0.3), tokens=10)
    found = verdicts.calibrate()
    assert found.rule.m == test.m
    assert found.rule.thresholds[0] < found.rule.thresholds[1]
    assert found.held_out > 0.9
    tau_Q = verdicts.tau_Q[verdicts.distribution_Q >= 5]
    share = {tau: np.mean(tau_Q == tau) for tau in (0.03, 0.3)}
    total = sum(share[tau] * right for tau, right in found.held_out_by_tau.items())
    assert total == pytest.approx(found.held_out)
    assert set(found.held_out_by_tau) == {0.03, 0.3}
    assert all(count > 50 for count in found.counts)
    # half of them were for fitting: those are not what it was measured on
    alone = collect_verdicts(test, p[:5], (0.03, 0.3), tokens=10).calibrate(fit=0.99)
    assert alone.counts[1] < alone.counts[0]


def test_the_seed_draws_the_tokens(model):
    p = np.stack([model.p(seed) for seed in range(2)])
    drawn = [
        collect_verdicts(BasisTest(model.W), p, (0.3,), tokens=4, seed=seed).token_Q.tolist()
        for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_tau_with_one_kind_of_verdict_gives_no_knot():
    def fit(taus, scores, accepted):
        zeros = np.zeros(len(taus), dtype=np.intp)
        test, accepted = SimpleNamespace(m=3), np.array(accepted, dtype=bool)
        seen = ExactVerdicts(test, np.ones((1, 1)), zeros, np.array(taus), zeros, np.array(scores), accepted)
        return seen.fit_rule(np.array([True]), lengths=False)

    rule = fit([0.1, 0.1, 0.5, 0.5], [1.0, 2.0, 1.0, 4.0], [1, 1, 0, 1])
    assert (rule.slopes, rule.thresholds) == ((1.0,), (pytest.approx(2),))
    # where nothing else is known, g is what they bound it by
    assert fit([0.1, 0.1], [1.0, 2.0], [1, 1]).thresholds == (1.0,)
    assert fit([0.1, 0.1], [1.0, 2.0], [0, 0]).thresholds == (2.0,)


def test_there_is_a_warning_if_the_formula_is_as_good(model):
    """What few verdicts fit is worse than the formula, and cross-validation sees it."""
    test = BasisTest(model.W)
    p = np.stack([model.p(seed, spread=2 + seed % 4) for seed in range(10)])
    with pytest.warns(UserWarning, match=r"not better than KappaRule\.typical\(25\)") as warning:
        found = test.calibrate_kappa(p, (0.03, 0.3), tokens=10)
    assert warning[0].filename == __file__
    comparison = found.comparison
    assert comparison.formula > comparison.fitted
    assert not comparison.is_better
    assert comparison.verdicts == sum(found.counts)


@pytest.mark.parametrize(("last", "is_better"), [(9.0, True), (30.0, False)])
def test_better_is_more_than_chance_explains(last, is_better):
    """By hand: two distributions, each judged by a g between 3 and 6 that the other fits; the formula's is 18.

    Everything accepted at 9 is right by the fitted rules alone: two of them (2 − 0 > √2), or one (1 − 0 = √1).
    """
    scaled, place = np.array([1.0, 9.0, 1.0, last]), np.array([0, 0, 1, 1])
    test, tau, token = SimpleNamespace(m=1000), np.full(4, 0.5), np.zeros(4, dtype=np.intp)
    assert KappaRule.typical(1000).threshold(0.5) == pytest.approx(17.9, abs=0.1)
    seen = ExactVerdicts(test, np.ones((2, 1)), place, tau, token, scaled, scaled > 5)
    comparison = seen.compare_with_formula(lengths=False)
    assert (comparison.fitted, comparison.formula) == (1.0, 0.5 if is_better else 0.75)
    assert comparison.is_better is is_better


def test_cross_validation_judges_no_rule_by_what_it_was_fitted_on(uneven, seen):
    """By hand: each fifth of the distributions, by the rule of the others."""
    (test, p), right = uneven, []
    for part in range(5):
        here = np.arange(30) // 6 == part
        rule = seen.fit_rule(~here, lengths=True)
        assert rule.lengths == test.row_lengths(p[~here])
        at = here[seen.distribution_Q]
        rows = zip(
            seen.distribution_Q[at], seen.tau_Q[at], seen.token_Q[at], seen.accepted_Q[at], strict=True
        )
        right += [bool(rule.step(p[n]).accepts(i, tau=tau)) == verdict for n, tau, i, verdict in rows]
    comparison = seen.compare_with_formula(lengths=True)
    assert comparison.fitted == pytest.approx(np.mean(right))
    formula = KappaRule.typical(test.m)
    rows = zip(seen.distribution_Q, seen.tau_Q, seen.token_Q, seen.accepted_Q, strict=True)
    said = [bool(formula.step(p[n]).accepts(i, tau=tau)) == verdict for n, tau, i, verdict in rows]
    assert comparison.formula == pytest.approx(np.mean(said))
    assert comparison.is_better
    assert comparison.verdicts == len(said) == len(right)


def test_undecided_tokens_are_not_used_to_fit(model):
    p = np.stack([model.p(seed) for seed in range(4)])
    test = BasisTest(model.W)
    as_int, part = (collect_verdicts(it, p, (0.1,), tokens=8) for it in (test, test.with_budget(2e6)))
    assert as_int.undecided == 0
    assert part.undecided > 0
    assert len(part.token_Q) + part.undecided == len(as_int.token_Q)
    with pytest.raises(ValueError, match=r"left all 12 tokens undecided"):
        collect_verdicts(test.with_budget(1.0), p, (1e-4,), tokens=3)


def test_one_distribution_is_not_enough(model):
    with pytest.raises(ValueError, match="at least two"):
        BasisTest(model.W).calibrate_kappa(model.p(0)[None], (0.1,))
    with pytest.raises(ValueError, match="0 < fit < 1"):
        BasisTest(model.W).calibrate_kappa(np.stack([model.p(0)] * 2), (0.1,), fit=1.0)


def test_nothing_below_tau_is_said_clearly():
    test = BasisTest(np.random.default_rng(0).standard_normal((3, 2)))
    with pytest.raises(ValueError, match="below any of the taus"):
        test.calibrate_kappa(np.full((2, 3), 1 / 3), (0.01,))


def test_with_lengths_the_rule_is_nearer_to_the_test(uneven, seen):
    test, p = uneven
    plain, weighted = (seen.calibrate(lengths=lengths) for lengths in (False, True))
    assert plain.rule.lengths is None
    assert weighted.rule.lengths == test.row_lengths(p[:15])
    assert plain.counts == weighted.counts
    assert weighted.held_out > plain.held_out + 0.02


@pytest.mark.parametrize("lengths", [False, True])
def test_agreement_is_what_the_rule_itself_says(uneven, seen, lengths):
    _, p = uneven
    found = seen.calibrate(lengths=lengths)
    rows = zip(seen.distribution_Q, seen.tau_Q, seen.token_Q, seen.accepted_Q, strict=True)
    right = [
        bool(found.rule.step(p[n]).accepts(i, tau=tau)) == verdict for n, tau, i, verdict in rows if n >= 15
    ]
    assert found.held_out == pytest.approx(np.mean(right))
    assert len(right) == found.counts[1]


def test_a_test_calibrates_by_the_verdicts_that_it_gives(uneven, seen):
    test, p = uneven
    assert test.calibrate_kappa(p, (0.03, 0.3), tokens=20) == seen.calibrate()


def test_equal_lengths_change_nothing(model):
    test = BasisTest(model.W, 0)  # only the column of ones is left
    p = np.stack([model.p(seed) for seed in range(4)])
    seen = collect_verdicts(test, p, (0.03, 0.3))
    plain, weighted = (seen.calibrate(lengths=lengths) for lengths in (False, True))
    assert weighted.rule.thresholds == pytest.approx(plain.rule.thresholds)
    assert weighted.held_out_by_tau == plain.held_out_by_tau
