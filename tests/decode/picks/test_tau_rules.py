import math

import pytest
import torch

from unspool.decode.picks import ConstantTau, EtaTau, NucleusTau

LOGP = torch.tensor([[0.5, 0.3, 0.15, 0.05], [0.25, 0.25, 0.25, 0.25], [1.0, 0.0, 0.0, 0.0]]).log()


def test_constant():
    assert ConstantTau(0.1)(LOGP) == [0.1, 0.1, 0.1]


def test_eta_falls_with_entropy():
    entropy = -sum(p * math.log(p) for p in (0.5, 0.3, 0.15, 0.05))
    want = [math.sqrt(0.16) * math.exp(-entropy), 0.4 / 4, 0.16]
    assert EtaTau(0.16)(LOGP) == pytest.approx(want, rel=1e-5)


def test_nucleus_is_the_boundary_of_top_p():
    assert NucleusTau(0.9)(LOGP) == pytest.approx([0.15, 0.25, 1 - 1e-9])
    assert NucleusTau(0.7)(LOGP)[0] == pytest.approx(0.3)


@pytest.mark.parametrize("kind", [ConstantTau, EtaTau, NucleusTau])
@pytest.mark.parametrize("value", [0, 1, -0.1, 1.5, math.nan])
def test_what_is_no_threshold_is_named(kind, value):
    with pytest.raises(ValueError, match=kind.__name__):
        kind(value)
