import pytest
import torch

from unspool.data.known_languages import ZipfMarkov
from unspool.diagnose.overestimation import optimality_gap
from unspool.lab.small_models import at_optimum, sample_contexts, train_narrow, trigram_contexts


def test_the_optimum_has_the_truths_mean_row():
    dice = torch.Generator().manual_seed(1)
    matrix, true = torch.randn(6, 2, generator=dice), torch.rand(3, 6, generator=dice).double()
    true /= true.sum(-1, keepdim=True)
    logp = at_optimum(matrix, true, pull=0.0)
    assert optimality_gap(logp, true, matrix).residual_C.max() < 1e-12
    # No other hidden vector is better.
    best = -(true * logp).sum(-1)
    for _ in range(20):
        other = (torch.randn(3, 2, generator=dice) @ matrix.T).double().log_softmax(-1)
        assert bool((-(true * other).sum(-1) >= best).all())


def test_places_by_hand():
    language = ZipfMarkov(word_count=1, order=2, stop=1.0)  # the one sentence has one word
    contexts, nexts = trigram_contexts(language, 1, 1)
    assert contexts.tolist() == [[1, 1], [1, 4]]
    assert nexts.tolist() == [4, 2]


def test_a_model_learns_what_can_follow():
    language, ticks = ZipfMarkov(word_count=6, branching=2), []
    model = train_narrow(language, 4, 200, 60, 64, 1, lambda: ticks.append(1))
    contexts, true = sample_contexts(language, 20, 1)
    with torch.no_grad():
        logp = model(contexts)
    assert len(ticks) == 60
    assert logp.exp().sum(-1).tolist() == pytest.approx([1.0] * 20, abs=1e-5)
    assert float((logp.exp() * (true > 0)).sum(-1).mean()) > 0.6
