import numpy as np
import pytest

from unspool.evaluate.reference_overlap import overlap_measures
from unspool.evaluate.significance import bootstrap, mean_of, ratio_of, resample_counts


def test_two_texts_by_hand():
    # of two texts, four equally likely draws: means 0, ½, ½, 1
    found = bootstrap(mean_of([0, 1]), level=0.4, samples=4000)
    assert (found.value, found.low, found.high) == (0.5, 0.5, 0.5)
    found = bootstrap(mean_of([0, 1]), level=0.9, samples=4000)
    assert (found.low, found.high) == (0, 1)
    assert str(bootstrap(mean_of([2.0]))) == "2 [2, 2]"


def test_the_interval_of_a_mean_is_that_of_the_normal_law():
    dice = np.random.default_rng(1)
    values = dice.normal(size=400)
    found = bootstrap(mean_of(values.tolist()), samples=4000)
    half = 1.96 * values.std() / 20
    assert found.high - found.low == pytest.approx(2 * half, rel=0.07)
    assert found.value == pytest.approx(values.mean())


def test_the_truth_is_inside_as_often_as_promised():
    dice, inside = np.random.default_rng(2), 0
    for seed in range(200):
        found = bootstrap(mean_of(dice.normal(size=60).tolist()), samples=300, seed=seed)
        inside += found.low <= 0 <= found.high
    assert 180 <= inside <= 199


def test_bleu_against_sacrebleu():
    from sacrebleu.metrics import BLEU

    dice = np.random.default_rng(3)
    words = ["a", "b", "c", "d", "e", "f"]
    references = [" ".join(dice.choice(words, 12)) for _ in range(60)]
    outputs = [" ".join(w if dice.random() < 0.7 else "x" for w in it.split()) for it in references]
    theirs = BLEU().corpus_score(outputs, [references], n_bootstrap=2000)
    ours = bootstrap(overlap_measures(outputs, references)["bleu"], samples=2000)
    assert ours.value == pytest.approx(theirs.score)
    assert (ours.high - ours.low) / 2 == pytest.approx(theirs._ci, rel=0.15)


def test_seeds_and_draws():
    measure = mean_of(list(range(30)))
    assert bootstrap(measure, seed=4) == bootstrap(measure, seed=4)
    assert bootstrap(measure, seed=4) != bootstrap(measure, seed=5)
    (times_BN,) = resample_counts(7, 20, 0)
    assert times_BN.shape == (20, 7)
    assert (times_BN.sum(axis=1) == 7).all()


def test_invalid_samples_raise():
    with pytest.raises(TypeError, match="is not a SummedMeasure"):
        bootstrap([1.0, 2.0])
    with pytest.raises(ValueError, match="NaN on every"):
        bootstrap(ratio_of([0], [0]))
    with pytest.raises(ValueError, match="at most 1,000,000"):
        bootstrap(mean_of([1]), samples=10**9)
