import math

import pytest
import torch
from hypothesis import given, settings, strategies as st

from unspool.decode.transforms import PLess


def test_by_hand():
    # Σp² = .25 + .09 + .0225 + .0025 = .365; norm: (4 · .365 − 1)/3 = .153.
    p = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    assert PLess().keeps(p).tolist() == [[True, False, False, False]]
    assert PLess(norm=True).keeps(p).tolist() == [[True, True, False, False]]


@pytest.mark.parametrize("V", [1, 2, 3, 7, 1000, 49_152])
@pytest.mark.parametrize("norm", [False, True])
def test_a_uniform_row_is_kept_whole(V, norm):
    assert PLess(norm).keeps(torch.full((1, V), -math.log(V))).all()


def test_a_certain_token_stays_alone():
    p = torch.tensor([[0.0, -math.inf, -40.0]])
    assert PLess().keeps(p).tolist() == [[True, False, False]]
    assert PLess(norm=True).keeps(p).tolist() == [[True, False, False]]


@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_the_threshold_is_the_collision_probability_and_norm_is_milder(any_scores, data):
    scores = data.draw(any_scores)
    kept = PLess().keeps(scores)
    assert (kept <= PLess(norm=True).keeps(scores)).all()
    p = scores.double().softmax(dim=-1)
    collision = (p * p).sum(dim=-1, keepdim=True)
    sure = (p - collision).abs() > 1e-6
    assert torch.equal((p > collision)[sure], kept[sure])


def test_norm_is_true_or_false():
    with pytest.raises(TypeError, match=r"PLess\.norm is 0\.5"):
        PLess(0.5)
