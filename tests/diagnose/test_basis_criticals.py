import numpy as np
import pytest
import torch

import unspool as us
from unspool.basis import BasisTest
from unspool.decode.picks import EtaTau, NucleusTau
from unspool.diagnose.matched_thresholds import RTOL, BasisCriticals, basis_criteria

W = torch.tensor([[0.55], [0.71], [0.29]])
LOGP = (2.55 * W[:, 0]).log_softmax(-1)  # p = 0.331, 0.498, 0.171


def test_the_worked_example_by_hand():
    # The distributions with the same mean embedding are p + t·(0.42, −0.26, −0.16). Token 0 is zero at t = −0.789,
    # where token 2 has grown the most, 1.739-fold: from τ = 1 − 1/1.739 on, zero is possible. For token 2 it is
    # 2.353-fold. Token 1 cannot be zero: token 2 would be negative.
    p = LOGP.exp().tolist()
    grown = 1 + p[0] / 0.42 * 0.16 / p[2], 1 + p[2] / 0.16 * 0.42 / p[0]
    critical = 1 - 1 / grown[0], 1 - 1 / grown[1]
    assert critical == pytest.approx((0.425, 0.575), abs=1e-3)
    collected = BasisCriticals(BasisTest(W), None, [0.0, 0.34, 0.67], 3)
    collected.extend(LOGP.expand(3, 3), torch.arange(3))
    none, one, two = ({m.sampler: m for m in collected.matches(share)} for share in (0.0, 0.34, 0.67))
    assert none["BA-ε"].setting < critical[0]
    assert critical[0] * (1 - RTOL) < one["BA-ε"].setting < critical[1]
    assert critical[1] * (1 - RTOL) < two["BA-ε"].setting < 1
    assert (none["BA-ε"].rejected, one["BA-ε"].rejected, two["BA-ε"].rejected) == (0, 1 / 3, 2 / 3)


@pytest.fixture(scope="module")
def places():
    dice = np.random.default_rng(5)
    matrix = torch.tensor(dice.normal(size=(60, 8)), dtype=torch.float32)
    logp_NV = (torch.tensor(dice.normal(size=(80, 8)), dtype=torch.float32) @ matrix.T).log_softmax(-1)
    token_N = torch.tensor([dice.choice(60, p=p / p.sum()) for p in logp_NV.double().exp().numpy()])
    return matrix, logp_NV, token_N


@pytest.mark.parametrize("share", [0.05, 0.2, 0.4])
def test_a_setting_rejects_the_share_it_was_matched_to(places, share):
    matrix, logp_NV, token_N = places
    test = BasisTest(matrix, 3)
    collected = BasisCriticals(test, 3, [share, 0.01], len(token_N))
    collected.extend(logp_NV, token_N)
    for match, rule in zip(
        collected.matches(share), (lambda t: us.decode.ConstantTau(t), EtaTau, NucleusTau), strict=True
    ):
        taus = rule(match.setting)(logp_NV)
        rejected = [
            not (logp_V.exp()[token] >= tau or test.accepts(logp_V.double().exp().numpy(), token, tau=tau))
            for logp_V, token, tau in zip(logp_NV, token_N.tolist(), taus, strict=True)
        ]
        assert sum(rejected) == pytest.approx(match.rejected * len(token_N), abs=1), match  # RTOL apart
        assert match.rejected == pytest.approx(share, abs=1 / len(token_N))


def test_probable_tokens_are_not_tested(places):
    matrix, logp_NV, token_N = places
    few, many = (BasisCriticals(BasisTest(matrix, 3), 3, [share], len(token_N)) for share in (0.01, 0.2))
    for collected in (few, many):
        collected.extend(logp_NV, token_N)
    assert few.tested < many.tested < len(token_N)


def test_decoders_can_be_parsed():
    for criterion in basis_criteria(20):
        assert us.parse(criterion.decoder(0.1)).pick.rank == 20
    assert us.parse(basis_criteria(None)[1].decoder(0.1)).pick.tau == EtaTau(0.1)
