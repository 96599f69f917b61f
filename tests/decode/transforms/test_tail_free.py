import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from unspool.decode.transforms import TailFree


def plain(z, row):
    """The definition, token by token."""
    ranked = sorted(range(len(row)), key=lambda token: (-row[token], token))
    p = np.exp(np.array([row[token] for token in ranked]))
    bend = [abs(p[r] - 2 * p[r + 1] + p[r + 2]) for r in range(len(p) - 2)]
    kept = {ranked[0]}
    total, upto = sum(bend), 0.0
    for r, d in enumerate(bend):
        upto += d
        if upto <= z * total:
            kept.add(ranked[r + 1])
    return kept


def test_by_hand():
    # p = .5, .3, .1, .06, .04: steps .2, .2, .04, .02; bends 0, .16, .02; shares 0, .889, 1.
    p = torch.tensor([[0.06, 0.5, 0.3, 0.04, 0.1]]).log()
    assert TailFree(0.8).keeps(p).tolist() == [[False, True, True, False, False]]
    assert TailFree(0.95).keeps(p).tolist() == [[False, True, True, False, True]]


def test_one_and_rows_without_curvature_keep_everything():
    assert TailFree(1.0).keeps(torch.tensor([[0.6, 0.3, 0.1]]).log()).all()
    assert TailFree(0.5).keeps(torch.zeros(2, 6)).all()
    assert TailFree(0.5).keeps(torch.tensor([[0.7, 0.3]]).log()).all()
    assert TailFree(0.5).keeps(torch.zeros(1, 1)).all()


@settings(deadline=None, max_examples=40)
@given(data=st.data(), z=st.floats(0.01, 0.99), y=st.floats(0.01, 1))
def test_the_kept_set_is_the_definition_and_a_larger_z_keeps_more(any_scores, data, z, y):
    scores = data.draw(any_scores).double().log_softmax(dim=-1)
    kept = TailFree(z).keeps(scores)
    assert (TailFree(min(z, y)).keeps(scores) <= TailFree(max(z, y)).keeps(scores)).all()
    for row, mask in zip(scores.tolist(), kept.tolist(), strict=True):
        p = np.exp(np.sort(row)[::-1])
        bend = np.abs(np.diff(p, 2))
        shares = np.cumsum(bend) / bend.sum() if len(row) > 2 and bend.sum() > 0 else None
        if shares is None or np.abs(shares - z).min() < 1e-9:
            continue  # no curvature, or a boundary that rounding decides
        alive = {token for token, score in enumerate(row) if score > -math.inf}
        assert {token for token, stays in enumerate(mask) if stays} == plain(z, row) & alive


@pytest.mark.parametrize("z", [0, -0.1, 1.1, math.nan])
def test_impossible_z_is_refused(z):
    with pytest.raises(ValueError, match=r"TailFree\.z is .*0 < z ≤ 1"):
        TailFree(z)
