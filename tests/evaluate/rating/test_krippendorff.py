import warnings
from math import isnan

import krippendorff
import numpy as np
import pytest

from unspool.evaluate.rating.rater_agreement import alpha, alpha_measure
from unspool.evaluate.significance import bootstrap


def test_by_hand():
    # two raters, four items: 00, 11, 01, 11. o_01 = o_10 = 1, n_0 = 3, n_1 = 5, n = 8
    units = [[0, 0], [1, 1], [0, 1], [1, 1]]
    assert alpha(units, [0, 1]) == pytest.approx(1 - 7 * 2 / (2 * 15))
    assert alpha(units, [0, 1], level="ordinal") == pytest.approx(alpha(units, [0, 1]))


@pytest.mark.parametrize("level", ["nominal", "ordinal"])
def test_against_the_reference_on_100_random_tables(level):
    dice, compared = np.random.default_rng(7), 0
    for _ in range(100):
        raters, items, values = dice.integers(2, 6), dice.integers(2, 30), dice.integers(2, 5)
        truth = dice.integers(0, values, size=items)
        table = np.where(dice.random((raters, items)) < 0.6, truth, dice.integers(0, values, (raters, items)))
        holes = dice.random((raters, items)) < dice.choice([0.0, 0.3])
        units = [
            [int(v) for v, hole in zip(*pair, strict=True) if not hole]
            for pair in zip(table.T, holes.T, strict=True)
        ]
        ours = alpha(units, list(range(values)), level=level)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                theirs = krippendorff.alpha(
                    reliability_data=np.where(holes, np.nan, table.astype(float)),
                    level_of_measurement=level,
                    value_domain=list(range(values)),
                )
            except (ValueError, AssertionError):
                assert isnan(ours)
                continue
        assert ours == pytest.approx(theirs, abs=1e-10, nan_ok=True)
        compared += 1
    assert compared >= 95


def test_ordinal_knows_of_near():
    near = [[0, 1], [1, 2], [2, 2], [0, 0], [1, 1]]
    far = [[0, 2], [0, 2], [2, 2], [0, 0], [1, 1]]
    assert alpha(near, [0, 1, 2], level="ordinal") > alpha(far, [0, 1, 2], level="ordinal")


def test_extremes():
    assert alpha([[0, 0], [1, 1, 1]], [0, 1]) == 1
    assert alpha([[0, 1], [1, 0]] * 50, [0, 1]) < 0
    assert isnan(alpha([[0, 0], [0, 0]], [0, 1]))
    assert isnan(alpha([[0], [1], []], [0, 1]))


def test_an_interval_over_items():
    dice = np.random.default_rng(0)
    units = [[int(a), int(a) if dice.random() < 0.8 else int(1 - a)] for a in dice.integers(0, 2, 200)]
    found = bootstrap(alpha_measure(units, [0, 1]))
    assert found.low < found.value < found.high
    assert found.high - found.low < 0.4


@pytest.mark.parametrize(
    ("units", "values", "level", "said"),
    [
        ([], [0, 1], "nominal", "units is empty"),
        ([[0, 3]], [0, 1], "nominal", "the rating 3 is not among the values"),
        ([[0, 1]], [0, 1], "ratio", "level is 'ratio', but must be one of"),
    ],
)
def test_invalid_ratings_raise(units, values, level, said):
    with pytest.raises(ValueError, match=said):
        alpha(units, values, level=level)
