import numpy as np
import pytest
import torch

from unspool.decode.multinomial import BLOCK, masses
from unspool.decode.shortlist.certainty import BLOCKS, ROUNDING, SLACK, doubt


def test_by_hand():
    assert doubt(0.5) == pytest.approx(ROUNDING / 2 + SLACK)
    assert doubt(0.0) == doubt(1.0) == SLACK
    assert doubt(0.1, BLOCKS) == pytest.approx(0.18 * BLOCKS + SLACK)


def test_a_share_of_weights_that_are_off_is_off_by_no_more():
    dice = np.random.default_rng(0)
    weight = dice.random((1000, 30))
    chosen = dice.random((1000, 30)) < dice.random((1000, 1))
    off = weight * (1 + 1e-4 * np.where(chosen, 1, -1))  # the worst case
    share, wrong = ((w * chosen).sum(axis=-1) / w.sum(axis=-1) for w in (weight, off))
    assert (np.abs(share - wrong) <= doubt(share, 1e-4) * (1 + 1e-3)).all()


@pytest.mark.parametrize("spread", [0.01, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("vocabulary", [4099, 49_152])
def test_torchs_softmax_and_sums_are_twice_as_exact_as_is_assumed(spread, vocabulary):
    scores = spread * torch.randn(16, vocabulary, generator=torch.Generator().manual_seed(1))
    weight = scores.softmax(dim=-1)
    exact = (scores - scores.amax(dim=-1, keepdim=True)).double().exp()
    ratio = weight.double() / exact
    factor = weight.double().sum(dim=-1, keepdim=True) / exact.sum(dim=-1, keepdim=True)
    off = (ratio / factor - 1).abs().masked_fill(weight < 1e-30, 0)
    assert off.max() <= ROUNDING / 1.5
    whole = vocabulary - vocabulary % BLOCK
    true = (exact * factor)[:, :whole].reshape(16, -1, BLOCK).sum(dim=-1)
    assert (masses(weight)[:, : true.shape[1]] / true - 1).abs().max() <= BLOCKS / 1.5
