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


KEYLESS = {"attention": "keyless", "positions": "learned"}


@pytest.fixture(params=["float32", "float16"])
def kv_cache(request):
    return request.param


@pytest.fixture(params=[{}, GEMMA, KEYLESS], ids=["llama", "gemma", "keyless"])
def model(request, kv_cache):
    torch.manual_seed(0)
    sizes = {"vocab_size": 17, "width": 16, "layers": 2, "heads": 4, "kv_heads": 2, "inner_width": 20}
    shape = TransformerConfig(**sizes, head_width=4, context=200, **request.param)
    model = shape.build().eval()
    model.engine, model.kv_cache = "compiled", kv_cache
    return model


def test_rows_join_a_running_batch_and_continue_as_if_alone(model):
    _, state = model.start([[1, 2, 3], [4]])
    _, state = model.step(state, torch.tensor([5, 6]))
    _, late = model.start([[7] * 20])
    step, state = model.step(model.joining.join([state, late]), torch.tensor([8, 9, 10]))
    for n, text in enumerate(([1, 2, 3, 5, 8], [4, 6, 9], [7] * 20 + [10])):
        assert torch.equal(model.start([text])[0].logp_NV[0], step.logp_NV[n])
    step, state = model.step(state.select(torch.tensor([2, 0])), torch.tensor([11, 12]))
    assert torch.equal(model.start([[1, 2, 3, 5, 8, 12]])[0].logp_NV[0], step.logp_NV[1])


def test_rewound_tokens_leave_no_trace(model):
    _, state = model.start([[1, 2, 3], [4]])
    said, state = model.extend(state, torch.tensor([[5, 6, 7], [8, 9, 10]]))
    one, state = model.step(model.rewind(state, 2), torch.tensor([11, 12]))
    assert torch.equal(one.logp_NV[0], model.start([[1, 2, 3, 5, 11]])[0].logp_NV[0])
    assert torch.equal(one.logp_NV[1], model.start([[4, 8, 12]])[0].logp_NV[0])
    assert torch.equal(said.logp_NV[4], model.start([[4, 8, 9]])[0].logp_NV[0])


def test_length_is_that_of_the_longest_row(model):
    _, state = model.start([[1, 2, 3], [4]])
    assert state.length == 3
    assert state.select(torch.tensor([1])).length == 1


def test_a_token_outside_the_vocabulary_is_refused(model):
    _, state = model.start([[1, 2, 3]])
    for wrong in (17, -1):
        with pytest.raises(IndexError, match="has 0 to 16"):
            model.step(state, torch.tensor([wrong]))


def test_samples_of_one_prompt_share_it(model):
    _, state = model.start([[1] * 64])
    before = state.kv_cache.used
    state = state.select(torch.zeros(16, dtype=torch.long))
    _, state = model.step(state, torch.arange(16))
    assert state.kv_cache.used == before + 16  # one block each, for what they do not share


def test_a_float16_cache_takes_half_the_memory_at_nearly_the_same_probabilities(model):
    found = {}
    for model.kv_cache in ("float32", "float16"):
        step, state = model.start([list(range(3, 17)) * 12])  # more than a span
        found[model.kv_cache] = step.logp_NV, model.forking.bytes_held(state, torch.tensor([0]))
    (exact, whole), (rounded, half) = found.values()
    assert half == whole // 2
    assert not torch.equal(exact, rounded)
    assert torch.allclose(exact, rounded, atol=2e-2)


def test_caches_of_different_formats_cannot_be_joined(model):
    _, state = model.start([[1, 2, 3]])
    model.kv_cache = "float16" if model.kv_cache == "float32" else "float32"
    _, other = model.start([[1, 2, 3]])
    with pytest.raises(ValueError, match="different formats"):
        model.joining.join([state, other])
