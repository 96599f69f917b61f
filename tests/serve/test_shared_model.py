import math

import pytest
import torch

import unspool as us
from unspool.serve.shared_model import GivenUp, probe
from unspool.testing import TableModel, random_table


def test_it_says_what_the_model_says(engine_of, compiled_model):
    shared = engine_of(compiled_model).open()
    for name in ("vocab_size", "context", "text", "answers", "source_vocab_size", "source_text"):
        assert getattr(shared, name) == getattr(compiled_model, name)
    assert shared.output_matrix is compiled_model.output_matrix
    assert shared.rewindable is shared.prompt_reading is shared
    assert shared.layered is None


def test_it_reads_selects_extends_and_rewinds_as_the_model_does(engine_of, compiled_model):
    shared = engine_of(compiled_model).open()
    found = []
    for model in (shared, compiled_model):
        said, state = model.start([[1, 2], [3]])
        state = state.select(torch.tensor([1, 0, 1])).select(torch.tensor([2, 1]))
        step, state = model.extend(state, torch.tensor([[4, 5, 6], [7, 8, 9]]))
        last, state = model.step(model.rewind(state, 2), torch.tensor([1, 2]))
        found.append([said.logp_NV, step.logp_NV, last.logp_NV])
    for ours, theirs in zip(*found, strict=True):
        assert torch.equal(ours, theirs)


def test_a_score_is_the_models(engine_of, compiled_model):
    with engine_of(compiled_model).open() as shared:
        assert us.score(shared, [1, 2], [3, 4, 5]) == us.score(compiled_model, [1, 2], [3, 4, 5])


def test_an_old_error_comes_back_where_it_was_stopped(engine_of):
    shared = engine_of(random_table(5, seed=0)).open()
    shared.stop(GivenUp("gone"))
    with pytest.raises(GivenUp, match="gone"):
        shared.start([[1]])


def test_a_probe_needs_numbers(engine_of):
    probe(engine_of(random_table(5, seed=0)).open())
    with pytest.raises(RuntimeError, match="nothing"):
        probe(engine_of(TableModel(lambda row: [float("nan")] * 2)).open())


def test_it_knows_whether_the_model_has_failed(engine_of):
    broken = TableModel(lambda row: [math.nan] * 3 if row[-1] == 2 else [0.2, 0.3, 0.5])
    with engine_of(broken).open() as shared:
        assert not shared.failed
        _, state = shared.start([[1]])
        assert not shared.failed
        shared.step(state, torch.tensor([2]))
        assert shared.failed
