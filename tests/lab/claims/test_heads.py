import pytest
import torch
from scipy.stats import spearmanr

from unspool.lab.claims.heads import (
    SPREADS,
    WIDTHS,
    bottleneck_rank,
    learnt_theta,
    new_sense,
    random_senses,
    separation,
)


def test_every_part_of_bottleneck_rank_can_fail(every_part_can_fail):
    good = {"rank of the truth": 60, "achieved": [3.0, 2.0, 1.0], "least": [2.0, 1.0, 0.5]}
    for width in WIDTHS:
        good |= {f"{kind}, d = {width}: rank": width + 1 for kind in ("recurrent", "Transformer")}
        good[f"mixture of softmaxes, d = {width}: rank"] = 40
    changes = [
        {"Transformer, d = 8: rank": 10},
        {"mixture of softmaxes, d = 4: rank": 5},
        {"achieved": [3.0, 0.5, 1.0]},
    ]
    every_part_can_fail(bottleneck_rank, good, changes)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("copied", [False, True])
def test_two_disconnected_clusters_end_with_one_sense_each(copied, seed):
    shares = new_sense(seed, copied)[-1]
    assert sorted(shares.argmax(-1).tolist()) == [0, 1]
    assert shares.amax(-1).min().item() >= 0.95


@pytest.mark.parametrize("seed", range(3))
def test_it_holds_when_everything_is_learnt_from_a_random_start(seed):
    assert separation(random_senses(seed)[-1]) >= 0.95


def test_how_far_senses_have_parted_by_hand():
    assert separation(torch.tensor([[0.9, 0.1], [0.4, 0.6]])) == pytest.approx(0.6)
    assert separation(torch.tensor([[0.2, 0.8], [0.7, 0.3]])) == pytest.approx(0.7)


@pytest.mark.parametrize("seed", range(3))
def test_wider_clusters_learn_a_larger_theta(seed):
    thetas = [learnt_theta(seed, spread) for spread in SPREADS]
    assert spearmanr(thetas, SPREADS).statistic >= 0.9
    assert thetas[-1] - thetas[0] > 1.0
