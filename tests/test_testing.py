import pytest
import torch

from unspool.testing import TableModel, bigram, random_table, trigram


def test_a_table_model_says_what_its_table_says():
    model = TableModel(lambda row: [0.25, 0.75] if row[-1] == 0 else [1.0, 0.0])
    step, state = model.start([[0], [0, 1]])
    assert step.logp_NV.exp().tolist() == [[0.25, 0.75], [1.0, 0.0]]
    step, _ = model.step(state, torch.tensor([1, 0]))
    assert step.logp_NV.exp().tolist() == [[1.0, 0.0], [0.25, 0.75]]


def test_rows_are_selected():
    model = TableModel(lambda row: [1.0] if len(row) == 2 else [0.5])
    _, state = model.start([[0], [0, 0]])
    assert state.select(torch.tensor([1, 1, 0])).rows == ((0, 0), (0, 0), (0,))


def test_extend_equals_steps_and_rewind_undoes_it():
    model = random_table(5, seed=3)
    _, state = model.start([[1, 2]])
    logp, after = model.extend(state, torch.tensor([[3, 4]]))
    step, between = model.step(state, torch.tensor([3]))
    assert torch.equal(logp[:, 0], step.logp_NV)
    assert torch.equal(logp[:, 1], model.step(between, torch.tensor([4]))[0].logp_NV)
    assert model.rewind(after, 2) == state


def test_bigram_and_trigram_see_one_and_two_tokens():
    assert bigram([[0.5, 0.5], [1.0, 0.0]]).table((0, 1)) == [1.0, 0.0]
    seen = []
    trigram(lambda a, b: seen.append((a, b)) or [1.0]).table((7, 8, 9))
    assert seen == [(8, 9)]


def test_a_random_table_is_fixed_by_its_seed():
    assert random_table(4, seed=1).table((2, 3)) == random_table(4, seed=1).table((0, 2, 3))
    assert random_table(4, seed=1).table((2, 3)) != random_table(4, seed=2).table((2, 3))
    assert sum(random_table(4, seed=1).table((2, 3))) == pytest.approx(1.0)
    assert random_table(4, seed=1).vocab_size == 4
