import pytest
import torch

from unspool.models.transformer_seq2seq import TransformerSeq2SeqConfig
from unspool.serve.joined_batch import JoinedBatch
from unspool.testing import TableModel, random_table


def tokens(*rows):
    return torch.tensor(rows)


@pytest.fixture
def model():
    return random_table(9, seed=2, order=4)


@pytest.fixture
def batch(model):
    return JoinedBatch(model, model.joining)


def said(model, *rows):
    return model.start(list(rows))[0].logp_NV


def test_lanes_go_on_at_their_own_pace(model, batch):
    (first, a), (second, b) = batch.begin([[[1], [2, 3]], [[4]]])
    assert torch.equal(first.logp_NV, said(model, [1], [2, 3]))
    assert torch.equal(second.logp_NV, said(model, [4]))
    (step,) = batch.extend([(b, tokens([5]))])
    assert torch.equal(step.logp_NV, said(model, [4, 5]))
    batch.pick(a, [1, 1, 0])  # a beam takes its second row twice
    ahead, beam = batch.extend([(b, tokens([6, 7])), (a, tokens([5], [6], [7]))])  # of two widths
    assert torch.equal(ahead.logp_NV, said(model, [4, 5, 6], [4, 5, 6, 7]))
    assert torch.equal(beam.logp_NV, said(model, [2, 3, 5], [2, 3, 6], [1, 7]))
    batch.rewind(b, 2)
    (step,) = batch.extend([(b, tokens([8]))])
    assert torch.equal(step.logp_NV, said(model, [4, 5, 8]))
    assert batch.rows == 4


def test_rows_that_nobody_holds_are_gone(model, batch):
    (_, a), (_, b), (_, c) = batch.begin([[[1]], [[2], [3]], [[4]]])
    del b
    a.open = False
    assert batch.rows == 1
    (step,) = batch.extend([(c, tokens([5]))])
    assert torch.equal(step.logp_NV, said(model, [4, 5]))
    del c
    batch.sweep()
    assert batch._state is None


def test_who_asks_what_cannot_be_is_told_alone():
    model = TableModel(lambda row: [0.5, 0.5], context=3)
    batch = JoinedBatch(model, model.joining)
    (_, good), bad, (_, full) = batch.begin([[[0]], [[7]], [[0, 1, 1]]])
    assert isinstance(bad, ValueError)
    step, error = batch.extend([(good, tokens([1])), (full, tokens([1]))])
    assert step.logp_NV.shape == (1, 2)
    assert "context" in str(error)
    (step,) = batch.extend([(good, tokens([1]))])
    assert step.logp_NV.shape == (1, 2)


def test_a_translation_is_told_of_its_own_source_alone():
    torch.manual_seed(0)
    shape = TransformerSeq2SeqConfig(
        vocab_size=11, width=8, encoder_layers=1, decoder_layers=1, heads=2, inner_width=8, bos=1, eos=2
    )
    model = shape.build().eval()
    model.engine = "compiled"
    batch = JoinedBatch(model, model.joining)
    ((first, short),) = batch.begin([[[3, 4]]])
    ((_, long),) = batch.begin([[[3, 4, 5, 6, 7, 8]]])
    step, other = batch.extend([(short, tokens([5])), (long, tokens([5]))])
    alone, _ = model.step(model.start([[3, 4]])[1], torch.tensor([5]))
    assert step.attention.shape == first.attention.shape == alone.attention.shape
    assert torch.equal(step.attention, alone.attention)
    assert torch.equal(step.logp_NV, alone.logp_NV)
    assert other.attention.shape[1] > step.attention.shape[1]


def test_hidden_vectors_of_prompts_are_told(compiled_model):
    batch = JoinedBatch(compiled_model, compiled_model.joining)
    ((_, a),) = batch.begin([[[1]]])
    hidden, step, lane = batch.read_all([[3, 4, 5]])
    expected, alone, _ = compiled_model.read_all([[3, 4, 5]])
    assert torch.equal(hidden, expected)
    assert torch.equal(step.logp_NV, alone.logp_NV)
    assert (a.rows, lane.rows) == ([0], [1])
