import math

import pytest
import torch

from unspool.decode.shortlist import nuclei
from unspool.decode.shortlist.rows import Shortlist
from unspool.decode.transforms import TopP, Typical

P = torch.tensor([[0.05, 0.5, 0.15, 0.3]])


@pytest.fixture(autouse=True, params=[0, nuclei.SHORT], ids=["by intervals", "short rows ranked"])
def _either_way(request, monkeypatch):
    monkeypatch.setattr(nuclei, "SHORT", request.param)


def kept(rule, how, scores_NV):
    """The token ids that stay, row by row."""
    return [row.nonzero()[:, 0].tolist() for row in how(rule, Shortlist.of(scores_NV)).whole() > -math.inf]


@pytest.mark.parametrize(
    ("p", "tokens"),
    [(0.1, [1]), (0.49, [1]), (0.51, [1, 3]), (0.79, [1, 3]), (0.9, [1, 2, 3]), (0.96, [0, 1, 2, 3])],
)
def test_nucleus_by_hand(p, tokens):
    assert kept(TopP(p), nuclei.top_p, P.log()) == [tokens]


@pytest.mark.parametrize(
    ("tau", "tokens"),
    # H = 1.1421; |−log p − H| = 1.85, 0.449, 0.755, 0.062
    [(0.2, [3]), (0.29, [3]), (0.31, [1, 3]), (0.79, [1, 3]), (0.9, [1, 2, 3]), (0.96, [0, 1, 2, 3])],
)
def test_typical_set_by_hand(tau, tokens):
    assert kept(Typical(tau), nuclei.typical, P.log()) == [tokens]


def test_the_most_probable_token_may_be_untypical():
    # H = 1.748: 0.4 is 0.832 nats away from it, 0.1 only 0.555
    p = torch.tensor([[0.4, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]])
    assert kept(Typical(0.3), nuclei.typical, p.log()) == [[1, 2, 3, 4, 5, 6]]


def test_of_tied_tokens_the_nucleus_takes_as_many_as_needed():
    p = torch.tensor([[0.1, 0.2, 0.1, 0.4, 0.1, 0.1]])
    assert kept(TopP(0.65), nuclei.top_p, p.log()) == [[0, 1, 3]]
    assert kept(TopP(0.75), nuclei.top_p, p.log()) == [[0, 1, 2, 3]]
    assert kept(TopP(0.95), nuclei.top_p, p.log()) == [[0, 1, 2, 3, 4, 5]]


def test_of_tied_tokens_the_typical_set_takes_all():
    p = torch.tensor([[0.1, 0.2, 0.1, 0.4, 0.1, 0.1]])
    # H = 1.609 = −log 0.2: 0.4 and 0.1 are both log 2 away, up to rounding; 0.2 comes first
    assert kept(Typical(0.15), nuclei.typical, p.log()) == [[1]]
    uniform = torch.zeros(1, 9)
    assert kept(Typical(0.5), nuclei.typical, uniform) == [list(range(9))]


@pytest.mark.parametrize(("rule", "how"), [(TopP(1.0), nuclei.top_p), (Typical(1.0), nuclei.typical)])
def test_one_is_the_identity(rule, how):
    scores = torch.tensor([[0.0, -1e4, -math.inf, -3.0]])
    assert kept(rule, how, scores) == [[0, 1, 3]]


@pytest.mark.parametrize(
    ("rule", "how"), [(TopP(0.9), nuclei.top_p), (Typical(0.9), nuclei.typical)], ids=["TopP", "Typical"]
)
def test_what_is_cut_stays_cut(rule, how):
    scattered = torch.full((1, 900), -math.inf)
    scattered[0, [0, 200, 300, 600]] = P.log()
    assert kept(rule, how, scattered) == [[200, 300, 600]]


@pytest.mark.parametrize("p", [1e-12, 1e-4, 0.5, 1 - 1e-9, 1 - 1e-15])
@pytest.mark.parametrize(("rule", "how"), [(TopP, nuclei.top_p), (Typical, nuclei.typical)])
@pytest.mark.parametrize("scale", [0.0, 1e-6, 1.0, 30.0, 1e4])
def test_any_mass_of_any_row_keeps_a_token_that_can_be_drawn(p, rule, how, scale):
    scores = scale * torch.randn(4, 2000, generator=torch.Generator().manual_seed(0))
    rows = how(rule(p), Shortlist.of(scores))
    assert (rows.total_N > 0).all()
    full = scores.double().softmax(dim=-1)
    mass = full.masked_fill(rows.whole() == -math.inf, 0).sum(dim=-1)
    assert (mass >= p - 1e-6).all()
