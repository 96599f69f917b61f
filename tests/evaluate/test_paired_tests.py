from itertools import product

import numpy as np
import pytest

from unspool.evaluate.reference_overlap import overlap_measures
from unspool.evaluate.significance import approximate_randomisation, mean_of


def test_randomisation_against_all_swaps():
    a, b = [3, 1, 4, 1, 5], [2, 0, 1, 2, 3]
    difference = np.mean(a) - np.mean(b)
    signs = np.array(list(product((1, -1), repeat=5)))
    exact = (np.abs((signs * (np.array(a) - b)).mean(axis=1)) >= difference - 1e-12).mean()
    found = approximate_randomisation(mean_of(a), mean_of(b), samples=20000)
    assert found.difference == pytest.approx(difference)
    assert found.p == pytest.approx(exact, abs=0.01)


def test_equal_systems_and_a_far_better_one():
    values = np.random.default_rng(0).normal(size=50)
    same = approximate_randomisation(mean_of(values.tolist()), mean_of(values.tolist()))
    assert (same.difference, same.p) == (0, 1)
    better = approximate_randomisation(mean_of((values + 5).tolist()), mean_of(values.tolist()))
    assert better.difference == pytest.approx(5)
    assert better.p == 1 / 1001
    worse = approximate_randomisation(mean_of(values.tolist()), mean_of((values + 5).tolist()))
    assert (worse.difference, worse.p) == (pytest.approx(-5), 1 / 1001)


def test_chance_is_called_significant_no_more_often_than_promised():
    dice, wrong = np.random.default_rng(5), 0
    for seed in range(200):
        a, b = dice.normal(size=(2, 40))
        wrong += (
            approximate_randomisation(mean_of(a.tolist()), mean_of(b.tolist()), samples=300, seed=seed).p
            <= 0.05
        )
    assert wrong <= 20


def test_bleu_against_sacrebleu():
    from sacrebleu.metrics import BLEU
    from sacrebleu.significance import PairedTest

    dice = np.random.default_rng(3)
    words = ["a", "b", "c", "d", "e", "f"]
    references = [" ".join(dice.choice(words, 12)) for _ in range(40)]
    spoil = lambda share: [  # noqa: E731
        " ".join(w if dice.random() < share else "x" for w in it.split()) for it in references
    ]
    one, two = spoil(0.7), spoil(0.67)
    _, theirs = PairedTest(
        [("one", one), ("two", two)], {"BLEU": BLEU()}, [references], "ar", n_samples=4000
    )()
    measures = [overlap_measures(outputs, references)["bleu"] for outputs in (one, two)]
    ours = approximate_randomisation(*measures, samples=4000)
    assert measures[1].value == pytest.approx(theirs["BLEU"][1].score)
    assert 0.005 < ours.p < 0.5
    assert ours.p == pytest.approx(theirs["BLEU"][1].p_value, abs=0.02)


def test_ter_against_sacrebleu_differs_by_draws_exactly_as_large():
    from sacrebleu.metrics import TER
    from sacrebleu.significance import PairedTest

    rng = np.random.default_rng(4)
    words = ["a", "b", "c", "d", "e", "f"]
    references = [" ".join(rng.choice(words, 7)) for _ in range(20)]
    one, two = (
        [" ".join(w if rng.random() < share else "x" for w in it.split()) for it in references]
        for share in (0.7, 0.76)
    )
    systems = [("one", one), ("two", two)]
    _, theirs = PairedTest(systems, {"TER": TER()}, [references], "ar", n_samples=10000)()
    first, second = (overlap_measures(outputs, references)["ter"] for outputs in (one, two))
    ours = approximate_randomisation(first, second, samples=10000)
    assert ours.ties > 0.03
    assert ours.p - ours.ties == pytest.approx(theirs["TER"][1].p_value, abs=0.02)
    # All 2^20 swaps, by the distribution of the sum of edits that change sides: p counts what is as large.
    chance = {0: 1.0}
    for d in (first.counts_NK[:, 0] - second.counts_NK[:, 0]).astype(int).tolist():
        moved = {}
        for total, p in chance.items():
            for side in (d, -d):
                moved[total + side] = moved.get(total + side, 0.0) + p / 2
        chance = moved
    found = abs(int((first.counts_NK[:, 0] - second.counts_NK[:, 0]).sum()))
    assert ours.p == pytest.approx(sum(p for total, p in chance.items() if abs(total) >= found), abs=0.02)


def test_without_ties_chance_would_be_called_significant_too_often():
    rng, ours, without_ties = np.random.default_rng(1), 0, 0
    for seed in range(400):
        a, b = rng.integers(0, 2, size=(2, 12)).tolist()
        found = approximate_randomisation(mean_of(a), mean_of(b), samples=400, seed=seed)
        ours += found.p <= 0.1
        without_ties += found.p - found.ties <= 0.1
    assert ours <= 0.1 * 400 + 12
    assert without_ties > 0.1 * 400 + 12


def test_systems_with_different_texts_raise():
    with pytest.raises(ValueError, match="\\(2, 2\\), \\(3, 2\\)"):
        approximate_randomisation(mean_of([1, 2]), mean_of([1, 2, 3]))
    with pytest.raises(TypeError, match="is not a SummedMeasure"):
        approximate_randomisation(mean_of([1, 2]), 3)
