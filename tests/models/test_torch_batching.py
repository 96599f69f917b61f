"""Rows of torch states that join, fork, grow and leave have the predictions of the same texts alone."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings, strategies as st

from unspool.decode.batching import CachedPrefixModel
from unspool.models.torch_batching import TorchRows
from unspool.models.transformer_lm import TransformerConfig

LLAMA = TransformerConfig(
    vocab_size=17, width=16, layers=2, heads=4, kv_heads=2, head_width=4, inner_width=20, context=99
)
SHAPES = {
    "llama": LLAMA,
    "gemma": replace(
        LLAMA,
        norm_place="both",
        activation="geglu",
        attention_cap=2.0,
        qk_norm="head",
        window=7,
        windowed_layers=(0,),
        window_rotary_base=10.0,
    ),
    "gpt2": replace(LLAMA, norm="layer", positions="learned", activation="gelu_tanh", bias=True, kv_heads=4),
    "keyless": replace(LLAMA, attention="keyless", positions="sinusoidal", kv_heads=2),
}


def built(name):
    torch.manual_seed(0)
    model = SHAPES[name].build().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    model.engine = "torch"
    return model


@pytest.fixture(params=SHAPES, scope="module")
def model(request):
    return built(request.param)


def check(model, step, texts):
    """The Step after each of these texts."""
    assert len(step.logp_NV) == len(texts)
    for row, text in enumerate(texts):
        alone = model.start([text])[0]
        for part in ("logp_NV", "hidden_ND", "log_norm_N"):
            torch.testing.assert_close(
                getattr(step, part)[row], getattr(alone, part)[0], atol=2e-4, rtol=1e-4, msg=part
            )


TEXT = [1 + k % 15 for k in range(40)]


def test_rows_of_a_joined_state_advance_independently(model):
    joining = model.joining
    state = joining.join([model.start([[1, 2, 3], [4]])[1], model.start([[7] * 20])[1]])
    step, state = joining.extend_rows(state, torch.tensor([0, 2]), torch.tensor([[5, 6], [8, 9]]))
    check(model, step, [[1, 2, 3, 5], [1, 2, 3, 5, 6], [7] * 20 + [8], [7] * 20 + [8, 9]])
    state = joining.rewind_rows(state, torch.tensor([2]), torch.tensor([2]))
    step, state = joining.extend_rows(state, torch.tensor([0, 1, 2]), torch.tensor([[10], [11], [12]]))
    check(model, step, [[1, 2, 3, 5, 6, 10], [4, 11], [7] * 20 + [12]])


def test_forked_rows_are_prefixes_of_others(model):
    forking = model.forking
    state = model.start([TEXT, [4]])[1]
    held = forking.bytes_held(state, torch.tensor([0]))
    state = forking.fork_rows(state, torch.tensor([0, 0, 1]), torch.tensor([37, 5, 0]))
    assert forking.bytes_held(state, torch.tensor([0, 2, 3, 4])) == held  # nothing was copied
    ends = [[9], [8] * 30, [7, 6]]
    texts = [TEXT, [4], [*TEXT[:37], 9], TEXT[:5] + [8] * 30, [7, 6]]
    step, state = forking.read_rows(state, torch.tensor([2, 3, 4]), ends)
    check(model, step, texts[2:])
    rows = torch.arange(5)
    step, state = model.joining.extend_rows(state, rows, torch.tensor([[3]] * 5))
    check(model, step, [[*text, 3] for text in texts])


def test_the_same_rows_grow_without_copies(model):
    joining = model.joining
    state = joining.join([model.start([[1, 2], [3]])[1], model.start([[4, 5, 6]])[1]])
    rows = torch.arange(3)
    _, state = joining.extend_rows(state, rows, torch.tensor([[7], [8], [9]]))
    batches = {row.batch for row in state.rows}
    assert len(batches) == 1
    state = joining.rewind_rows(state, rows, torch.tensor([1, 1, 1]))
    step, state = joining.extend_rows(state, rows, torch.tensor([[9], [8], [7]]))
    assert {row.batch for row in state.rows} == batches
    check(model, step, [[1, 2, 9], [3, 8], [4, 5, 6, 7]])


def test_a_longer_prompt_is_read_from_where_it_is_new(model):
    cached = CachedPrefixModel(model, 2**20)
    cached.start([TEXT])
    step, state = cached.start([[*TEXT, 3, 4]])
    check(model, step, [[*TEXT, 3, 4]])
    assert cached.batch.read_tokens == len(TEXT) + 2
    check(model, cached.step(state, torch.tensor([5]))[0], [[*TEXT, 3, 4, 5]])


def test_a_failure_leaves_the_state_as_it_was(model, monkeypatch):
    state = model.joining.join([model.start([[1, 2, 3], [4]])[1]])
    rows, tokens = torch.tensor([0, 1]), torch.tensor([[5], [6]])
    with pytest.raises(IndexError):
        model.joining.extend_rows(state, rows, torch.tensor([[5], [17]]))
    with monkeypatch.context() as broken:  # after the first layer has stored its keys
        broken.setattr(model.blocks[1].feed_forward, "forward", lambda x: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model.joining.extend_rows(state, rows, tokens)
        with pytest.raises(ZeroDivisionError):
            model.forking.read_rows(state, torch.tensor([1]), [[6, 7]])
    step, _ = model.joining.extend_rows(state, rows, tokens)
    check(model, step, [[1, 2, 3, 5], [4, 6]])


def test_removed_rows_free_their_memory(model):
    _, state = model.start([[1 + k] * 9 for k in range(15)] + [TEXT, TEXT[:30]])
    state = model.joining.join([state]).select(torch.tensor([15, 16, 15]))
    state = model.forking.compact(model.joining.rewind_rows(state, torch.tensor([2]), torch.tensor([7])))
    sizes = [
        sum(part.numel() for part in row.batch.state.keys_values()) / len(row.batch.state.pads)
        for row in state.rows
    ]
    assert {row.batch.size for row in state.rows} == {1}
    assert [row.length for row in state.rows] == [40, 30, 33]
    assert sizes[0] == sizes[2] == sizes[1] * 40 / 30
    assert state.rows[0].batch is state.rows[2].batch
    step, _ = model.joining.extend_rows(state, torch.arange(3), torch.tensor([[3], [4], [5]]))
    check(model, step, [[*TEXT, 3], [*TEXT[:30], 4], [*TEXT[:33], 5]])


@settings(max_examples=40)
@given(data=st.data())
@pytest.mark.parametrize("name", SHAPES)
def test_any_sequence_of_operations_keeps_the_predictions(name, data):
    model = built(name)
    joining, forking = model.joining, model.forking
    tokens = st.integers(1, 16)
    prompts = st.lists(st.lists(tokens, min_size=1, max_size=9), min_size=1, max_size=3)
    texts = data.draw(prompts)
    step, state = model.start(texts)
    check(model, step, texts)
    for _ in range(data.draw(st.integers(1, 8))):
        rows = sorted(data.draw(st.sets(st.integers(0, len(texts) - 1), min_size=1)))
        match data.draw(st.sampled_from(["extend", "read", "rewind", "fork", "join", "select"])):
            case "extend":
                width = data.draw(st.integers(1, 3))
                new = [data.draw(st.lists(tokens, min_size=width, max_size=width)) for _ in rows]
                step, state = joining.extend_rows(state, torch.tensor(rows), torch.tensor(new))
                grown = [
                    texts[row] + own[: t + 1]
                    for row, own in zip(rows, new, strict=True)
                    for t in range(width)
                ]
                check(model, step, grown)
                for row, own in zip(rows, new, strict=True):
                    texts[row] = texts[row] + own
            case "read":
                new = [data.draw(st.lists(tokens, min_size=1, max_size=4)) for _ in rows]
                step, state = forking.read_rows(state, torch.tensor(rows), new)
                for row, own in zip(rows, new, strict=True):
                    texts[row] = texts[row] + own
                check(model, step, [texts[row] for row in rows])
            case "rewind":
                fewer = [data.draw(st.integers(0, len(texts[row]) - 1)) for row in rows]
                state = joining.rewind_rows(state, torch.tensor(rows), torch.tensor(fewer))
                for row, number in zip(rows, fewer, strict=True):
                    texts[row] = texts[row][: len(texts[row]) - number]
            case "fork":
                lengths = [data.draw(st.integers(0, len(texts[row]))) for row in rows]
                new = [data.draw(st.lists(tokens, min_size=1, max_size=4)) for _ in rows]
                first, count = len(texts), len(rows)
                state = forking.fork_rows(state, torch.tensor(rows), torch.tensor(lengths))
                texts += [texts[row][:length] for row, length in zip(rows, lengths, strict=True)]
                step, state = forking.read_rows(state, torch.arange(first, first + count), new)
                for place, own in enumerate(new, first):
                    texts[place] = texts[place] + own
                check(model, step, texts[first:])
            case "join":
                more = data.draw(prompts)
                state = joining.join([state, model.start(more)[1]])
                texts = texts + more
            case "select":
                order = data.draw(st.lists(st.integers(0, len(texts) - 1), min_size=1, max_size=5))
                state = (state if isinstance(state, TorchRows) else joining.join([state])).select(
                    torch.tensor(order)
                )
                texts = [texts[row] for row in order]
    step, state = joining.extend_rows(state, torch.arange(len(texts)), torch.tensor([[5]] * len(texts)))
    check(model, step, [[*text, 5] for text in texts])
