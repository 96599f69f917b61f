import pytest
import torch

from unspool.models.transformer_lm import TransformerConfig

GEMMA = {
    "norm_place": "both",
    "activation": "geglu",
    "attention_cap": 2.0,
    "qk_norm": "head",
    "window": 7,
    "windowed_layers": (0,),
    "window_rotary_base": 10.0,
}


@pytest.fixture(params=[{}, GEMMA], ids=["llama", "gemma"])
def model(request):
    torch.manual_seed(0)
    sizes = {"vocab_size": 17, "width": 16, "layers": 2, "heads": 4, "kv_heads": 2, "inner_width": 20}
    shape = TransformerConfig(**sizes, head_width=4, context=99, **request.param)
    return shape.build().eval()


TEXT = [1 + k % 15 for k in range(40)]


def test_forked_rows_are_prefixes_of_others(model):
    forking = model.forking
    state = model.start([TEXT, [4]])[1]
    held = forking.bytes_held(state, torch.tensor([0]))
    state = forking.fork_rows(state, torch.tensor([0, 0, 1]), torch.tensor([37, 5, 0]))
    assert state.kv_cache.lengths.tolist() == [40, 1, 37, 5, 0]
    assert forking.bytes_held(state, torch.tensor([0, 2, 3])) == held  # nothing was copied
    ends = [[9], [8] * 30, [7, 6]]
    step, state = forking.read_rows(state, torch.tensor([2, 3, 4]), ends)
    for row, text in enumerate([[*TEXT[:37], 9], TEXT[:5] + [8] * 30, [7, 6]]):
        alone = model.start([text])[0]
        assert torch.equal(step.logp_NV[row], alone.logp_NV[0])
        assert torch.equal(step.hidden_ND[row], alone.hidden_ND[0])
        assert torch.equal(step.log_norm_N[row], alone.log_norm_N[0])
    step, state = model.step(state, torch.tensor([3] * 5))  # the first rows were not written over
    for row, text in enumerate([TEXT, [4], [*TEXT[:37], 9], TEXT[:5] + [8] * 30, [7, 6]]):
        assert torch.equal(step.logp_NV[row], model.start([[*text, 3]])[0].logp_NV[0])


def test_a_failure_leaves_the_state_as_it_was(model):
    state = model.start([TEXT])[1]
    with pytest.raises(IndexError):
        model.forking.read_rows(state, torch.tensor([0]), [[17]])
    step, _ = model.forking.read_rows(state, torch.tensor([0]), [[5]])
    assert torch.equal(step.logp_NV, model.start([[*TEXT, 5]])[0].logp_NV)


def test_compact_frees_memory(model):
    _, state = model.start([[1 + k] * 99 for k in range(15)] + [TEXT])
    _, state = model.step(state.select(torch.arange(15, 16).repeat(600)), torch.tensor([2] * 600))
    large = len(state.kv_cache.users)
    state = model.forking.compact(state.select(torch.tensor([7])))
    assert len(state.kv_cache.users) < large
    step, _ = model.step(state, torch.tensor([3]))
    assert torch.equal(step.logp_NV, model.start([[*TEXT, 2, 3]])[0].logp_NV)
