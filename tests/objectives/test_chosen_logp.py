import pytest
import torch

from unspool.objectives import cross_entropy as module
from unspool.objectives.cross_entropy import chosen_logp, target_logp


def head(hidden_MD):
    return torch.log_softmax(hidden_MD, dim=-1)


def test_by_hand():
    hidden = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]]).log()
    found = chosen_logp(head, hidden, torch.tensor([[0, 2], [2, 2]]), 3)
    assert found.exp().flatten().tolist() == pytest.approx([0.5, 0.25, 0.7, 0.7])


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_pieces_change_neither_value_nor_gradient(rows, monkeypatch):
    hidden, tokens = torch.randn(5, 4, requires_grad=True), torch.randint(4, (5, 3))
    whole = chosen_logp(head, hidden, tokens, 4)
    (expected,) = torch.autograd.grad(whole.square().sum(), hidden)
    monkeypatch.setattr(module, "CELLS", 4 * rows)
    found = chosen_logp(head, hidden, tokens, 4)
    torch.testing.assert_close(found, whole)
    torch.testing.assert_close(torch.autograd.grad(found.square().sum(), hidden)[0], expected)


def test_targets_are_scored_as_cross_entropy_does_and_padding_is_0(transformer, rows):
    model, batch = transformer(), rows()
    found = target_logp(model, batch)
    total, _ = model.head.loss(
        model.hidden_for(batch).flatten(0, 1), batch.targets_NU.flatten(), batch.weights_NU.flatten()
    )
    assert -found.sum().item() == pytest.approx(total.item(), rel=1e-5)
    assert not found[batch.weights_NU == 0].any()
