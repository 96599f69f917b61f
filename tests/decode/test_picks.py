import math

import pytest
import torch

from unspool.decode.picks import TORCH_ARGMAX_SCORES, ArgMax, ConstantTau, EtaTau, NucleusTau
from unspool.interfaces import Step

SCORES = torch.tensor([[0.1, 0.7, 0.2], [0.4, 0.2, 0.4]]).log()


def test_the_most_probable_token_and_the_smallest_of_equals():
    assert ArgMax().draw(SCORES, Step(SCORES), []).tolist() == [1, 0]


@pytest.mark.parametrize(
    "V", [TORCH_ARGMAX_SCORES // 4, TORCH_ARGMAX_SCORES // 4 + 1, TORCH_ARGMAX_SCORES]
)  # by torch, and compiled
def test_many_scores_are_searched_to_the_same_end(V):
    torch.manual_seed(V)
    scores_NV = -torch.randint(0, 50, (4, V)) / 8  # each is there many times
    scores_NV[1] = -math.inf
    scores_NV[2, : V // 2] = -math.inf
    first_N = [row.tolist().index(row.max().item()) for row in scores_NV]
    assert ArgMax().draw(scores_NV, Step(scores_NV), []).tolist() == first_N
    scores_NV[3, V - 1] = math.nan
    assert ArgMax().draw(scores_NV, Step(scores_NV), []).tolist() == [*first_N[:3], V - 1]


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


def test_eta_above_1_gives_a_threshold_below_1():
    assert EtaTau(4.0)(LOGP) == pytest.approx([2 * math.exp(-1.1421), 2 / 4, 1 - 1e-9], rel=1e-4)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *((kind, value) for kind in (ConstantTau, NucleusTau) for value in (0, 1, -0.1, 1.5, math.nan)),
        *((EtaTau, value) for value in (0, -0.1, math.inf, math.nan)),
    ],
)
def test_an_invalid_threshold_is_named(kind, value):
    with pytest.raises(ValueError, match=kind.__name__):
        kind(value)
