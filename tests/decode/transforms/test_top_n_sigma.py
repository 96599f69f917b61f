import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from unspool.decode.hypothesis import Hypothesis
from unspool.decode.transforms import Temperature, TopNSigma
from unspool.interfaces import Step


def test_by_hand():
    # Logits 4, 3, 1, 0: mean 2, σ = √2.5 = 1.581.
    logits = torch.tensor([[4.0, 3.0, 1.0, 0.0]])
    assert TopNSigma(0.5).keeps(logits).tolist() == [[True, False, False, False]]
    assert TopNSigma(1).keeps(logits).tolist() == [[True, True, False, False]]
    assert TopNSigma(2).keeps(logits).tolist() == [[True, True, True, False]]
    assert TopNSigma(3).keeps(logits).all()


def test_cut_tokens_count_nowhere():
    whole, holed = torch.tensor([[4.0, 3.0, 1.0, 0.0]]), torch.tensor([[4.0, -math.inf, 3.0, 1.0, 0.0]])
    kept = TopNSigma(1).keeps(holed)
    assert kept.tolist() == [[True, False, True, False, False]]
    assert torch.equal(kept[:, [0, 2, 3, 4]], TopNSigma(1).keeps(whole))


def test_equal_scores_all_stay():
    assert TopNSigma(0.01).keeps(torch.full((1, 5), -1.609)).all()


def test_the_kept_set_is_the_definition_in_double_precision(matrices):
    for name, scores in matrices.items():
        for n in (0.3, 1.0, 2.0):
            for row, kept in zip(scores.double().numpy(), TopNSigma(n).keeps(scores).numpy(), strict=True):
                living = row[np.isfinite(row)]
                slack = n * living.std() - (living.max() - row)
                sure = np.abs(slack) > 1e-5 * (1 + np.abs(living).max())
                assert ((slack >= 0) == kept)[sure].all(), name


@settings(deadline=None, max_examples=30)
@given(data=st.data(), t=st.sampled_from([0.25, 0.5, 2.0, 8.0]), n=st.floats(0.1, 3), m=st.floats(0.1, 3))
def test_temperature_changes_nothing_and_a_larger_n_keeps_more(any_scores, data, t, n, m):
    scores = data.draw(any_scores).double()
    warm = Temperature(t)(scores, Step(scores), [Hypothesis(0, 0, ())] * len(scores))
    assert torch.equal(TopNSigma(n).keeps(warm), TopNSigma(n).keeps(scores - scores.amax(-1, keepdim=True)))
    assert (TopNSigma(min(n, m)).keeps(scores) <= TopNSigma(max(n, m)).keeps(scores)).all()


@pytest.mark.parametrize("n", [0, -1, math.nan, math.inf])
def test_impossible_n_is_refused(n):
    with pytest.raises(ValueError, match=r"TopNSigma\.n is .*0 < n"):
        TopNSigma(n)
