import pytest
import torch
from scipy.stats import spearmanr

from unspool.lab.claims.heads import (
    SPREADS,
    WIDTHS,
    bottleneck_rank,
    kerbs_against_softmax,
    learnt_theta,
    new_sense,
    random_senses,
    second_sense,
    separation,
    wider_senses,
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


def test_every_part_of_second_sense_can_fail(every_part_can_fail):
    names = ("begun near 0", "begun as a copy", "all begun at random")
    keys = [f"{name}: the part's own sense is used" for name in names]
    every_part_can_fail(second_sense, dict.fromkeys(keys, 0.99), [{key: 0.5} for key in keys])


@pytest.mark.parametrize("seed", range(3))
def test_wider_clusters_learn_a_larger_theta(seed):
    thetas = [learnt_theta(seed, spread) for spread in SPREADS]
    assert spearmanr(thetas, SPREADS).statistic >= 0.9
    assert thetas[-1] - thetas[0] > 1.0


def test_every_part_of_wider_senses_can_fail(every_part_can_fail):
    good = {"steps of the spread at which θ rises, of 7": 7, "θ, narrowest": -1.0, "θ, widest": 1.0}
    every_part_can_fail(
        wider_senses, good, [{"steps of the spread at which θ rises, of 7": 4}, {"θ, widest": -0.5}]
    )


def test_every_part_of_kerbs_against_softmax_can_fail(every_part_can_fail):
    others = ("softmax", "softmax, wider", "KerBS, no kernel", "KerBS, no allocation")
    every_part_can_fail(
        kerbs_against_softmax, {"KerBS": 0.5, **dict.fromkeys(others, 0.6)}, [{it: 0.4} for it in others]
    )
