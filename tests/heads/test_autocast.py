"""Every head under autocast, without gradients: as training validates, and as half precision is decoded."""

import pytest
import torch
from torch import nn

from unspool.heads import HEADS

WIDTH, WORDS = 16, 40


@pytest.mark.parametrize("tied", [False, True], ids=["own", "tied"])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", HEADS)
def test_the_answer_is_that_of_single_precision_to_the_digits_there_are(kind, dtype, rows, tied):
    torch.manual_seed(0)
    tied_or_not = {"tied": True} if tied and "tied" in HEADS[kind].__dataclass_fields__ else {}
    head = HEADS[kind](**tied_or_not).build(WIDTH, WORDS, nn.Embedding(WORDS, WIDTH))
    hidden = torch.randn(rows, WIDTH).to(dtype)
    with torch.no_grad():
        want = head(hidden.float())
        with torch.autocast("cpu", torch.bfloat16):
            logp = head(hidden)
    assert logp.dtype == torch.float32
    torch.testing.assert_close(logp.exp().sum(-1), torch.ones(rows))
    # bfloat16 has 8 bits, and an unlikely word's score is several times their spread.
    assert (logp - want).abs().max() < 0.03 * want.std()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("kind", HEADS)
def test_the_loss_is_the_sum_of_its_targets_to_single_precision(kind, smoothing):
    torch.manual_seed(0)
    head = HEADS[kind]().build(WIDTH, WORDS, nn.Embedding(WORDS, WIDTH))
    hidden, targets, weights = torch.randn(500, WIDTH), torch.randint(WORDS, (500,)), torch.rand(500)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        loss, nll = head.loss(hidden, targets, weights, smoothing)
        logp = head(hidden)
    assert nll.dtype == loss.dtype == torch.float32
    want = -(weights.double() * logp.double()[torch.arange(500), targets]).sum().item()
    even = -(weights.double() * logp.double().mean(-1)).sum().item()
    # A sum of 2,000 nats in bfloat16 would be off by up to 4.
    assert nll.item() == pytest.approx(want, rel=3e-4)
    assert loss.item() == pytest.approx((1 - smoothing) * want + smoothing * even, rel=3e-4)
