import torch

from unspool.serve.scheduler import SoloBatch
from unspool.testing import TableModel


def test_every_asker_has_a_state_of_its_own():
    model = TableModel(lambda row: [0.25, 0.75] if row[-1] else [0.5, 0.5], context=3)
    batch = SoloBatch(model)
    (first, a), bad, (_, b) = batch.prefill([[[0], [1]], [[9]], [[1]]])
    assert first.logp_NV.exp().tolist() == [[0.5, 0.5], [0.25, 0.75]]
    assert isinstance(bad, ValueError)
    batch.select(a, [1, 1])
    step, ahead = batch.extend([(a, torch.tensor([[0], [1]])), (b, torch.tensor([[0, 1]]))])
    assert step.logp_NV.exp().tolist() == [[0.5, 0.5], [0.25, 0.75]]
    assert ahead.logp_NV.exp().tolist() == [[0.5, 0.5], [0.25, 0.75]]
    (error,) = batch.extend([(b, torch.tensor([[0]]))])
    assert "context" in str(error)
    batch.rewind(b, 1)
    assert b.state.rows == ((1, 0),)


def test_rows_that_nobody_holds_are_gone():
    batch = SoloBatch(TableModel(lambda row: [0.5, 0.5]))
    (_, a), (_, b) = batch.prefill([[[0]], [[0], [1]]])
    assert batch.rows == 3
    a.open = False
    batch.sweep()
    assert a.state is None
    assert batch.rows == 2
    del b
    assert batch.rows == 0
