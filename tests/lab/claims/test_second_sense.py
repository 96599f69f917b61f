import pytest
import torch

from unspool.lab.claims.second_sense import CLAIM, from_anywhere, new_sense, parted


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("copied", [False, True])
def test_two_disconnected_clusters_end_with_one_sense_each(copied, seed):
    shares = new_sense(seed, copied)[-1]
    assert sorted(shares.argmax(-1).tolist()) == [0, 1]
    assert shares.amax(-1).min().item() >= 0.95


@pytest.mark.parametrize("seed", range(3))
def test_it_holds_when_everything_is_learnt_from_a_random_start(seed):
    assert parted(from_anywhere(seed)[-1]) >= 0.95


def test_how_far_senses_have_parted_by_hand():
    assert parted(torch.tensor([[0.9, 0.1], [0.4, 0.6]])) == pytest.approx(0.6)
    assert parted(torch.tensor([[0.2, 0.8], [0.7, 0.3]])) == pytest.approx(0.7)


def test_every_part_can_fail(every_part_can_fail):
    names = ("begun near 0", "begun as a copy", "all begun at random")
    keys = [f"{name}: the part's own sense is used" for name in names]
    every_part_can_fail(CLAIM, dict.fromkeys(keys, 0.99), [{key: 0.5} for key in keys])
