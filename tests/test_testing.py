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
    ahead, after = model.extend(model.start([[1, 2]])[1], torch.tensor([[3, 4]]))
    step, between = model.step(model.start([[1, 2]])[1], torch.tensor([3]))
    assert torch.equal(ahead.logp_NV[:1], step.logp_NV)
    assert torch.equal(ahead.logp_NV[1:], model.step(between, torch.tensor([4]))[0].logp_NV)
    back = model.rewind(after, 2)
    assert back == model.start([[1, 2]])[1]
    assert torch.equal(model.step(back, torch.tensor([3]))[0].logp_NV, step.logp_NV)


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


def test_a_row_that_outgrows_the_context_is_refused():
    model = TableModel(lambda row: [0.5, 0.5], context=3)
    _, state = model.start([[0, 1], [0]])
    _, state = model.step(state, torch.tensor([1, 1]))
    with pytest.raises(ValueError, match=r"a row has 4 tokens, but the context of this model is 3"):
        model.step(state, torch.tensor([1, 1]))
    with pytest.raises(ValueError, match="context of this model is 3"):
        model.extend(model.start([[0]])[1], torch.tensor([[0, 1, 0]]))
    with pytest.raises(ValueError, match="context of this model is 3"):
        model.start([[0, 0, 0, 0]])


@pytest.mark.parametrize("prompts", [[], [[]], [[1], []]], ids=str)
def test_prompts_of_nothing_are_refused(prompts):
    with pytest.raises(ValueError, match="at least one token"):
        bigram([[0.5, 0.5]] * 2).start(prompts)


@pytest.mark.parametrize("token", [2, -1])
def test_a_token_outside_the_vocabulary_is_refused(token):
    model = bigram([[0.5, 0.5]] * 2)
    with pytest.raises(ValueError, match=rf"tokens \[{token}\] are outside the vocabulary 0…1"):
        model.start([[0], [0, token]])
    with pytest.raises(ValueError, match="outside the vocabulary"):
        model.step(model.start([[0]])[1], torch.tensor([token]))
    with pytest.raises(ValueError, match="outside the vocabulary"):
        model.extend(model.start([[0]])[1], torch.tensor([[0, token]]))


@pytest.mark.parametrize("token", [True, 1.0, "1", None])
def test_a_prompt_of_anything_but_ids_is_refused(token):
    with pytest.raises(TypeError, match="token ids are whole numbers"):
        bigram([[0.5, 0.5]] * 2).start([[0, token]])


@pytest.mark.parametrize(
    ("tokens", "error"),
    [
        ([1], TypeError),
        (torch.tensor([1.0]), TypeError),
        (torch.tensor([True]), TypeError),
        (torch.tensor([1, 1]), ValueError),
        (torch.tensor([[1]]), ValueError),
        (torch.tensor(1), ValueError),
    ],
    ids=repr,
)
def test_tokens_of_the_wrong_type_or_shape_are_refused(tokens, error):
    model = bigram([[0.5, 0.5]] * 2)
    _, state = model.start([[0]])
    with pytest.raises(error, match=r"must be a tensor|must have 1 dimension|give at least one"):
        model.step(state, tokens)


@pytest.mark.parametrize(
    "tokens_NT", [torch.zeros(1, 0, dtype=torch.long), torch.zeros(1), torch.tensor([1])]
)
def test_tokens_that_extend_nothing_are_refused(tokens_NT):
    model = bigram([[0.5, 0.5]] * 2)
    with pytest.raises((TypeError, ValueError), match=r"give at least one|must "):
        model.extend(model.start([[0]])[1], tokens_NT)


@pytest.mark.parametrize(
    "use",
    [
        lambda model, state: model.step(state, torch.tensor([1])),
        lambda model, state: model.extend(state, torch.tensor([[1]])),
        lambda model, state: model.rewind(state, 0),
        lambda model, state: state.select(torch.tensor([0])),
    ],
    ids=["step", "extend", "rewind", "select"],
)
def test_a_state_is_used_once(use):
    model = bigram([[0.5, 0.5]] * 2)
    _, state = model.start([[0]])
    use(model, state)
    for again in (lambda: model.step(state, torch.tensor([1])), lambda: state.select(torch.tensor([0]))):
        with pytest.raises(ValueError, match="this state was used before"):
            again()


@pytest.mark.parametrize("rows", [[], [2], [-1]], ids=str)
def test_rows_that_are_not_there_are_refused(rows):
    _, state = bigram([[0.5, 0.5]] * 2).start([[0], [1]])
    with pytest.raises(ValueError, match=r"has rows 0…1"):
        state.select(torch.tensor(rows, dtype=torch.long))


def test_nothing_of_a_prompt_is_forgotten():
    model = bigram([[0.5, 0.5]] * 2)
    _, state = model.extend(model.start([[0, 1, 1]])[1], torch.tensor([[1, 0]]))
    for tokens in (3, -1):
        with pytest.raises(ValueError, match="nothing of a prompt"):
            model.rewind(state, tokens)
    with pytest.raises(ValueError, match=r"have 0 after their prompt"):
        model.rewind(model.rewind(state, 2), 1)


def test_what_a_step_holds_cannot_be_written_to():
    step, _ = bigram([[0.5, 0.5]] * 2).start([[0]])
    with pytest.raises(RuntimeError, match="inference"):
        step.logp_NV[0, 0] = 0.0


def test_a_table_that_changes_its_size_is_refused():
    with pytest.raises(ValueError, match=r"returned \[1\] probabilities, but 2"):
        TableModel(lambda row: [0.5, 0.5] if row == (0,) else [1.0]).start([[1]])


def test_rows_that_begin_as_others():
    model = random_table(5, seed=1, order=9)
    state = model.fork_rows(model.start([[1, 2, 3]])[1], torch.tensor([0, 0]), torch.tensor([2, 0]))
    assert model.bytes_held(state, torch.tensor([0, 1, 2])) == 3
    step, state = model.read_rows(state, torch.tensor([1, 2]), [[4], [1, 2]])
    assert state.rows == ((1, 2, 3), (1, 2, 4), (1, 2))
    assert torch.equal(step.logp_NV, model.start([[1, 2, 4], [1, 2]])[0].logp_NV)
    for row, length in ((3, 0), (0, 4), (0, -1)):
        with pytest.raises(ValueError, match="no more than it has"):
            model.fork_rows(state, torch.tensor([row]), torch.tensor([length]))
    with pytest.raises(ValueError, match="at least one token"):
        model.read_rows(state, torch.tensor([0]), [[]])
    assert model.compact(state).rows == state.rows
