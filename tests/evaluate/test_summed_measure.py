from math import exp, inf, isnan, log

import numpy as np
import pytest

from unspool.evaluate.significance import SummedMeasure, mean_of, perplexity_of, ratio_of


def test_by_hand():
    assert mean_of([1, 2, 6]).value == 3
    assert ratio_of([1, 2], [2, 10]).value == 3 / 12  # not the mean of 1/2 and 1/5
    assert perplexity_of([log(8), 0.0], [1, 2]).value == pytest.approx(2)


def test_drawn_corpora_are_those_of_the_texts_drawn():
    measure = ratio_of([1, 2, 5], [2, 2, 4])
    times_BN = np.array([[3, 0, 0], [0, 1, 2]], dtype=float)
    expected = [ratio_of([1] * 3, [2] * 3).value, ratio_of([2, 5, 5], [2, 4, 4]).value]
    assert measure.resampled(times_BN).tolist() == expected


def test_extremes_are_no_errors():
    assert isnan(ratio_of([1], [0]).value)
    assert perplexity_of([1e6], [1]).value == inf
    assert perplexity_of([3.0], [1]).value == exp(3)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: mean_of([]), "one or more texts"),
        (lambda: mean_of([float("nan")]), "must be a finite number"),
        (lambda: ratio_of([1], [1, 2]), "1 and 2 values"),
        (lambda: SummedMeasure(np.zeros(3), float), "must be finite numbers"),
        (lambda: SummedMeasure(np.zeros((0, 2)), float), "must be finite numbers"),
        (lambda: SummedMeasure(np.array([["a"]]), float), "must be finite numbers"),
    ],
)
def test_invalid_arguments_raise(make, said):
    with pytest.raises(ValueError, match=said):
        make()
