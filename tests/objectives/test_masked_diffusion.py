import pytest
import torch

from unspool.objectives.masked import MaskedDiffusionLoss


def test_a_place_counts_once_in_the_mean_by_any_t():
    torch.manual_seed(0)
    weights_NT = MaskedDiffusionLoss().weigh(torch.full((20000,), 2), torch.rand(20000), torch.rand(20000, 3))
    assert not weights_NT[:, 2].any()
    assert (weights_NT[:, :2].mean(0) - 1).abs().max() < 0.05
    shown = weights_NT[:, :2][weights_NT[:, :2] > 0]
    assert shown.min() >= 1.0
    assert shown.max() <= 50.0


def test_hidden_shares_are_uniform():
    torch.manual_seed(0)
    lengths_N, rate_N, place_NT = torch.full((3000,), 200), torch.rand(3000), torch.rand(3000, 200)
    share_N = (MaskedDiffusionLoss(0.001).weigh(lengths_N, rate_N, place_NT) > 0).float().mean(1)
    assert abs(float(share_N.mean()) - 0.5) < 0.02
    assert abs(float(share_N.var()) - 1 / 12) < 0.01


def test_t_is_uniform_and_raised_to_the_least():
    rate_N = torch.tensor([0.0, 0.05, 0.2, 0.7])
    found_NT = MaskedDiffusionLoss(0.1).weigh(torch.ones(4).long(), rate_N, torch.zeros(4, 1))
    assert found_NT[:, 0].tolist() == pytest.approx([1 / 0.1, 1 / 0.1, 1 / 0.2, 1 / 0.7])


def test_what_cannot_be_is_said():
    with pytest.raises(ValueError, match="least=0"):
        MaskedDiffusionLoss(0.0)
