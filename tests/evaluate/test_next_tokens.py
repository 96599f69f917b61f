import pytest
import torch

import unspool as us
from unspool.decode.run import Run
from unspool.evaluate.exact_support import next_tokens
from unspool.testing import bigram

MODEL = bigram([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]])


def of(decoder, prompts=((0,), (1,)), model=MODEL):
    job = Run(model, list(prompts), max_new_tokens=1, seed=0).job
    step, _ = model.start(job.prompts)
    kept_NV, q_NV = next_tokens(decoder, model, job)(step, job.hypotheses())
    return kept_NV.tolist(), q_NV.exp()


def test_by_hand():
    kept, q_NV = of(us.Sample(us.TopP(0.75)))
    assert kept == [[True, True, False], [False, True, False]]
    assert q_NV[0].tolist() == pytest.approx([0.625, 0.375, 0])
    kept, q_NV = of(us.Greedy())
    assert kept == [[True, False, False], [False, True, False]]
    assert q_NV[1].tolist() == [0, 1, 0]


def test_probabilities_match_the_frequency_of_draws():
    decoder = us.Sample(us.Temperature(2.0), us.TopK(2))
    _, q_NV = of(decoder, [(2,)])
    drawn = us.generate(MODEL, [2], decoder, n=4000, max_new_tokens=1, seed=1)
    shares = torch.bincount(torch.tensor([it.tokens[0] for it in drawn]), minlength=3) / 4000
    assert shares.tolist() == pytest.approx(q_NV[0].tolist(), abs=0.03)


def test_basis_aware_keeps_the_tokens_that_it_draws():
    torch.manual_seed(0)
    sizes = {"vocab_size": 12, "width": 4, "heads": 2, "inner_width": 4, "layers": 1}
    model = us.models.TransformerConfig(**sizes).build().eval()
    decoder = us.Sample(us.BasisAware(0.2, rank=2))
    kept, q_NV = of(decoder, [(3, 4)], model)
    drawn = us.generate(model, [3, 4], decoder, n=500, max_new_tokens=1, seed=0)
    assert {it.tokens[0] for it in drawn} <= {token for token, k in enumerate(kept[0]) if k}
    assert float(q_NV.sum()) == pytest.approx(1)


def test_a_beam_has_no_next_token():
    with pytest.raises(TypeError, match="does not choose token by token"):
        of(us.Beam(3))
