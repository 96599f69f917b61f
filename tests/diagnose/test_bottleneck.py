import math

import pytest
import torch

from unspool.diagnose.bottleneck import bottleneck, least_error, spectrum
from unspool.heads.kerbs import Kerbs
from unspool.heads.softmax import Softmax
from unspool.testing import bigram


def test_a_diagonal_by_hand():
    """Singular values 3, 2 and 0; entries as small as −3."""
    found = spectrum(torch.tensor([[-3.0, 0.0, 0.0], [0.0, -2.0, 0.0], [0.0, 0.0, 0.0]]))
    assert found.singular_values == pytest.approx((3.0, 2.0, 0.0))
    assert (found.rank, found.limit, found.delta) == (2, None, 3.0)
    assert found.uniform_delta == pytest.approx(math.log(3))


def test_softmax_is_bound_by_its_width_and_kerbs_is_not():
    torch.manual_seed(0)
    hidden = torch.randn(40, 5)
    softmax, kerbs = Softmax(5, 30), Kerbs(5, torch.arange(30), 30)
    torch.nn.init.normal_(kerbs.theta_S, std=3.0)
    with torch.no_grad():
        bound, free = spectrum(softmax(hidden), softmax.weight), spectrum(kerbs(hidden))
    assert (bound.rank, bound.limit) == (6, 6)
    assert bound.conclusive
    assert len(bound.weight_singular_values) == 5
    assert free.rank > 15


def test_too_few_contexts_tell_nothing():
    head = Softmax(5, 30)
    with torch.no_grad():
        assert not spectrum(head(torch.randn(6, 5)), head.weight).conclusive
        assert spectrum(head(torch.randn(7, 5)), head.weight).conclusive


def test_nothing_of_lower_rank_comes_nearer_than_the_tail():
    torch.manual_seed(0)
    true = torch.randn(12, 9, dtype=torch.float64)
    assert least_error(torch.diag(torch.tensor([5.0, 4.0, 3.0])), 1) == pytest.approx(5.0)
    for rank in (0, 1, 4):
        u, s, v = torch.linalg.svd(true, full_matrices=False)
        best = (u[:, :rank] * s[:rank]) @ v[:rank]
        assert least_error(true, rank) == pytest.approx((true - best).norm().item())
        other = torch.randn(12, rank, dtype=torch.float64) @ torch.randn(rank, 9, dtype=torch.float64)
        assert (true - other).norm().item() >= least_error(true, rank)
    assert least_error(true, 9) == 0.0


def test_a_model_is_measured_on_the_places_of_a_text():
    rows = [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]]
    found = bottleneck(bigram(rows), [[0, 1, 2, 0, 1, 2, 0]], contexts=5)
    assert (found.contexts, found.vocab_size, found.rank) == (5, 3, 3)
    assert found.delta == pytest.approx(-math.log(0.1))
    found = bottleneck(bigram([[0.5, 0.25, 0.25]] * 3), [[0, 1, 2, 0, 1, 2, 0]])
    assert (found.contexts, found.rank) == (6, 1)


def test_what_is_not_finite_is_refused():
    endless = torch.tensor([[0.0, -torch.inf]])
    with pytest.raises(ValueError, match="before any truncation"):
        spectrum(endless)
    with pytest.raises(ValueError, match="smooth the language"):
        least_error(endless, 1)
