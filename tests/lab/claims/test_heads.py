import math

import pytest
import torch
from scipy.stats import spearmanr

from unspool.lab.claims.heads import (
    SENSE_STARTS,
    SPREADS,
    WIDTHS,
    bottleneck_rank,
    learnt_theta,
    least_underestimation,
    new_sense,
    random_senses,
    sense_pulls,
    separation,
    spread_sign,
)


def test_every_part_of_bottleneck_rank_can_fail(every_part_can_fail):
    good = {"rank of the truth": 60, "achieved": [3.0, 2.0, 1.0], "least": [2.0, 1.0, 0.5]}
    for width in WIDTHS:
        good |= {f"{kind}, d = {width}: rank": width + 1 for kind in ("recurrent", "Transformer")}
        good[f"mixture of softmaxes, d = {width}: rank"] = 40
        good |= {f"max(A − A′), d = {width}": 2.0, f"bound of max(A − A′), d = {width}": 0.1}
    changes = [
        {"Transformer, d = 8: rank": 10},
        {"mixture of softmaxes, d = 4: rank": 5},
        {"achieved": [3.0, 0.5, 1.0]},
        {"bound of max(A − A′), d = 8": 0.0},
    ]
    every_part_can_fail(bottleneck_rank, good, changes)
    assert not bottleneck_rank.held([{**good, "max(A − A′), d = 4": 0.05}])[3][0]


def test_the_least_underestimation_by_hand():
    # A uniform truth: each of two entries is at most max(δ, log(1 + 2τ)) = log(3 − 2e^(−δ)) off, and more than δ.
    delta = least_underestimation(torch.full((1, 2), 0.5), 0.1 * 2**0.5)
    assert math.log(3 - 2 * math.exp(-delta)) == pytest.approx(0.1)


@pytest.mark.parametrize("seed", range(5))
def test_no_pair_of_distributions_has_less_underestimation_than_its_bound(seed):
    rng = torch.Generator().manual_seed(seed)
    one, other = (torch.rand(4, 6, generator=rng, dtype=torch.float64) for _ in range(2))
    one, other = one / one.sum(-1, keepdim=True), other / other.sum(-1, keepdim=True)
    difference = one.log() - other.log()
    bound = least_underestimation(one, float(difference.norm()))
    assert 0 < bound <= float(difference.max())


def test_every_part_of_sense_pulls_can_fail(every_part_can_fail):
    good = {
        "near 0: ε": 0.01,
        "a copy: ε": 0.5,
        "near 0: pull of part 2": 90.0,
        "a copy: pull of part 2": 90.0,
    }
    good |= {"near 0: pull of part 1": 0.01, "a copy: pull of part 1": 1.0}
    good |= {f"{it}: bound of the pull of part 1": 2.0 for it in SENSE_STARTS}
    good |= {f"{it}: error of lines 2 and 3": 0.0 for it in SENSE_STARTS}
    changes = [
        {"a copy: error of lines 2 and 3": 0.1},
        {"near 0: bound of the pull of part 1": 0.001},
        {"near 0: pull of part 2": 0.5},
        {"a copy: ε": 0.1},
    ]
    every_part_can_fail(sense_pulls, good, changes)


def test_every_part_of_spread_sign_can_fail(every_part_can_fail):
    good = {"least product of the derivatives of F₁": 1e-9, "largest F₁": -1e-9}
    good |= {"cos where ∂K/∂θ changes its sign": 0.6667}
    good |= {"θ, spread 0.5": -3.0, "θ, spread 1": -1.0, "θ, spread 2": 0.5}
    changes = [
        {"least product of the derivatives of F₁": 0.0},
        {"largest F₁": 0.0},
        {"cos where ∂K/∂θ changes its sign": 0.0},
        {"θ, spread 1": -4.0},
    ]
    every_part_can_fail(spread_sign, good, changes)


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
