import pytest
import torch

from unspool.objectives.masked_diffusion import MaskedDiffusionLoss


def test_a_place_counts_once_in_the_mean_by_any_t():
    torch.manual_seed(0)
    weights_NT = MaskedDiffusionLoss().weigh(torch.full((20000,), 2), 3)
    assert not weights_NT[:, 2].any()
    assert (weights_NT[:, :2].mean(0) - 1).abs().max() < 0.05
    shown = weights_NT[:, :2][weights_NT[:, :2] > 0]
    assert shown.min() >= 1.0
    assert shown.max() <= 50.0


def test_hidden_shares_are_uniform():
    torch.manual_seed(0)
    share_N = (MaskedDiffusionLoss(0.001).weigh(torch.full((3000,), 200), 200) > 0).float().mean(1)
    assert abs(float(share_N.mean()) - 0.5) < 0.02
    assert abs(float(share_N.var()) - 1 / 12) < 0.01


def test_what_cannot_be_is_said():
    with pytest.raises(ValueError, match="least=0"):
        MaskedDiffusionLoss(0.0)
