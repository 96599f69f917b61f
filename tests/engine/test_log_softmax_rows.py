import math

import pytest
import torch

from unspool.engine import log_softmax, memory
from unspool.engine.log_softmax import log_softmax_rows


def test_by_hand():
    found = log_softmax_rows(torch.tensor([[0.0, 0.0], [math.log(3), 0.0]]))
    torch.testing.assert_close(found.exp(), torch.tensor([[0.5, 0.5], [0.75, 0.25]]))


@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (5, 4099), (2, 200_000)])
@pytest.mark.parametrize("threads", [1, 3])
def test_log_softmax_rows_equals_torch_on_any_number_of_threads(shape, threads, monkeypatch):
    monkeypatch.setattr(log_softmax, "WORTH_SHARING", 0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    logits = 5 * torch.randn(shape, generator=torch.Generator().manual_seed(0))
    before = logits.clone()
    found = log_softmax_rows(logits)
    assert torch.equal(logits, before)
    assert torch.equal(found, torch.cat([log_softmax_rows(row[None]) for row in logits]))
    torch.testing.assert_close(found.double(), logits.double().log_softmax(dim=-1), atol=4e-6, rtol=0)


def test_rows_that_are_not_contiguous():
    wide = torch.randn(4, 3, 50)
    assert torch.equal(log_softmax_rows(wide[:, 1]), log_softmax_rows(wide[:, 1].contiguous()))


def test_a_referenced_result_is_not_overwritten():
    logits = torch.randn(8, 5000)
    held = log_softmax_rows(logits)[3:, ::2]
    before = held.clone()
    for _ in range(5):
        log_softmax_rows(torch.randn(8, 5000))
    assert torch.equal(held, before)


def test_the_memory_of_a_deleted_result_is_reused(monkeypatch):
    monkeypatch.setattr(memory, "_idle_buffers", [])  # what other tests have left might fit better
    where = log_softmax_rows(torch.randn(8, 5001)).data_ptr()
    assert log_softmax_rows(torch.randn(8, 5001)).data_ptr() == where
