import pytest
from scipy.stats import spearmanr

from unspool.lab.claims.wider_senses import CLAIM, SPREADS, learnt_theta


@pytest.mark.parametrize("seed", range(3))
def test_wider_clusters_learn_a_larger_theta(seed):
    thetas = [learnt_theta(seed, spread) for spread in SPREADS]
    assert spearmanr(thetas, SPREADS).statistic >= 0.9
    assert thetas[-1] - thetas[0] > 1.0


def test_every_part_can_fail(every_part_can_fail):
    good = {"steps of the spread at which θ rises, of 7": 7, "θ, narrowest": -1.0, "θ, widest": 1.0}
    every_part_can_fail(CLAIM, good, [{"steps of the spread at which θ rises, of 7": 4}, {"θ, widest": -0.5}])
