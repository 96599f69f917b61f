"""Which engine a model takes, and that both say the same."""

import copy
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from unspool.engine.compiled_transformer import compiled_language_model
from unspool.engine.engine_choice import ENGINES, engine_obstacle, parse_engine
from unspool.engine.stored_weights import StoredLinear, quantise_int8
from unspool.engine.weight_table import PIECE, QKV, WEIGHT
from unspool.heads import HEADS
from unspool.models.lora import LoRA, add_adapters, find_adapters, merge_adapters
from unspool.models.rnn_models import RNNConfig, RNNSeq2SeqConfig
from unspool.models.transformer_lm import TransformerConfig
from unspool.models.trigram import TrigramConfig
from unspool.nn.positions import RotaryScaling

SIZES = {
    "vocab_size": 31,
    "width": 24,
    "layers": 2,
    "heads": 4,
    "kv_heads": 2,
    "head_width": 10,
    "inner_width": 36,
    "context": 80,
}
SHAPES = {
    "llama": {},
    "gpt2": {"norm": "layer", "positions": "learned", "activation": "gelu_tanh", "bias": True, "kv_heads": 4},
    "qwen": {"qkv_bias": True, "tied": False, "kv_heads": 1},
    "vaswani": {"norm": "layer", "norm_place": "post", "positions": "sinusoidal", "activation": "relu"},
    "sandwich": {"norm_place": "both", "activation": "gelu", "bias": True, "norm": "layer"},
    "stretched": {"rotary_scaling": RotaryScaling(8.0, 1.0, 4.0, 16), "rotary_base": 500.0},
    "qwen3": {"qk_norm": "head", "tied": False},
    "olmo2": {"qk_norm": "whole", "norm_place": "after"},
    "gemma2": {
        "norm_place": "both",
        "activation": "geglu",
        "attention_cap": 1.5,
        "embed_scale": 24**0.5,
        "window": 6,
        "windowed_layers": (0,),
        "head": HEADS["capped"](3.0),
    },
    "gemma3": {
        "layers": 3,
        "norm_place": "both",
        "activation": "geglu",
        "qk_norm": "head",
        "window": 33,  # a block and a token
        "windowed_layers": (0, 2),
        "window_rotary_base": 50.0,
        "rotary_factor": 8.0,
    },
    "smollm3": {"unrotated_layers": (1,), "window": 1, "windowed_layers": (0,)},
    "partly turned": {"rotary_width": 4, "norm": "layer", "norm_place": "after", "activation": "relu"},
    "keyless": {"attention": "keyless", "positions": "sinusoidal"},
    "keyless, wide heads": {
        "attention": "keyless",
        "positions": "learned",
        "head_width": 40,
        "norm_place": "post",
        "bias": True,
    },
    "keyless, odd": {
        "attention": "keyless",
        "positions": "none",
        "width": 13,
        "heads": 3,
        "kv_heads": 1,
        "qkv_bias": True,
        "window": 33,
        "windowed_layers": (1,),
    },
    "odd": {"width": 13, "inner_width": 7, "head_width": 6, "heads": 3, "kv_heads": 3, "vocab_size": 1009},
}


def made(**options):
    torch.manual_seed(0)
    model = TransformerConfig(**SIZES | options).build().eval()
    for weight in model.parameters():  # norms' gains and biases, too
        nn.init.normal_(weight, std=0.3)
    return model


@pytest.fixture(params=SHAPES)
def model(request):
    return made(**SHAPES[request.param])


def rows(n, length, vocab=31):
    return torch.randint(0, vocab, (n, length), generator=torch.Generator().manual_seed(n)).tolist()


def walked(model, engine, prompts):
    """Everything that a model says on a walk with all that may happen to a state."""
    model.engine = engine
    said = []
    step, state = model.start(prompts)
    said.append(step)
    for tokens in ([1, 2, 3], [4, 5, 6]):
        step, state = model.step(state, torch.tensor(tokens))
        said.append(step)
    state = state.select(torch.tensor([2, 0, 0, 1, 2]))
    for _ in range(20):
        step, state = model.step(state, torch.tensor([7, 8, 9, 10, 11]))
        said.append(step)
    step, state = model.extend(state, torch.tensor([[1, 2, 3]] * 5))
    said.append(step)
    state = model.rewind(state, 2)
    state = state.select(torch.tensor([4, 1]))
    step, state = model.step(state, torch.tensor([12, 13]))
    said.append(step)
    return said


def test_both_engines_agree_over_many_steps(model):
    prompts = [rows(1, 5)[0], rows(1, 19)[0], rows(1, 1)[0]]
    for ours, want in zip(walked(model, "compiled", prompts), walked(model, "torch", prompts), strict=True):
        torch.testing.assert_close(ours.logp_NV, want.logp_NV, atol=1e-4, rtol=1e-5)
        torch.testing.assert_close(ours.hidden_ND, want.hidden_ND, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(ours.log_norm_N, want.log_norm_N, atol=1e-4, rtol=1e-5)


def test_compiled_log_probabilities_are_equal_to_the_bit_alone_and_in_company(model):
    model.engine = "compiled"
    texts = [row[:length] for row, length in zip(rows(9, 24), (24, 3, 17, 16, 1, 5, 9, 22, 12), strict=True)]
    together, state = model.start(texts)
    tokens = torch.arange(9)
    next_together, _ = model.step(state, tokens)
    for n, text in enumerate(texts):
        alone, state = model.start([text])
        assert torch.equal(alone.logp_NV[0], together.logp_NV[n])
        alone, _ = model.step(state, tokens[n : n + 1])
        assert torch.equal(alone.logp_NV[0], next_together.logp_NV[n])
        assert torch.equal(alone.hidden_ND[0], next_together.hidden_ND[n])


@pytest.mark.parametrize("head", HEADS)
def test_every_head_agrees_with_torch(head):
    model = made(head=HEADS[head]())
    prompts = rows(3, 7)
    found = []
    for engine in ENGINES:
        model.engine = engine
        step, state = model.start(prompts)
        found.append((step, model.step(state, torch.tensor([1, 2, 3]))[0]))
    for ours, want in zip(*found, strict=True):
        torch.testing.assert_close(ours.logp_NV, want.logp_NV, atol=1e-4, rtol=1e-5)
        assert (ours.log_norm_N is None) == (want.log_norm_N is None)


def test_exits_and_hidden_vectors_of_prompts_are_handed_out(model):
    prompts = [rows(1, 9)[0], rows(1, 4)[0]]
    found = []
    for engine in ENGINES:
        model.engine = engine
        exits = model.exits([0, 1])
        step, state = exits.start(prompts)
        found.append((model.read_all(prompts)[0], step, exits.step(state, torch.tensor([3, 4]))[0]))
    (hidden, *ours), (want_hidden, *want) = found
    torch.testing.assert_close(hidden, want_hidden, atol=1e-4, rtol=1e-4)
    for mine, theirs in zip(ours, want, strict=True):
        torch.testing.assert_close(mine.exits_NEV, theirs.exits_NEV, atol=1e-4, rtol=1e-5)
        torch.testing.assert_close(mine.logp_NV, theirs.logp_NV, atol=1e-4, rtol=1e-5)


def test_a_change_of_weights_is_seen_at_once_and_costs_no_copy():
    model = made()
    model.engine = "compiled"
    _, state = model.start(rows(1, 5))
    with torch.no_grad():
        model.norm.weight.mul_(2)
    changed, _ = model.step(state, torch.tensor([1]))
    model.engine = "torch"
    _, state = model.start(rows(1, 5))
    want, _ = model.step(state, torch.tensor([1]))
    torch.testing.assert_close(changed.logp_NV, want.logp_NV, atol=1e-4, rtol=1e-5)


def test_where_matrices_are_stacked_only_biases_are_copied_for_each_text():
    model = made(attention="keyless", positions="none", qkv_bias=True)
    table = compiled_language_model(model).weights.table
    for layer, block in enumerate(model.blocks):
        addresses = [block.attention.query.weight.data_ptr(), block.attention.value.weight.data_ptr()]
        assert [table[layer, QKV, at + WEIGHT] for at in (0, PIECE)] == addresses
    step, _ = model.start(rows(1, 5))
    with torch.no_grad():
        model.blocks[1].attention.value.bias.add_(1)
    again, _ = model.start(rows(1, 5))
    model.engine = "torch"
    want, _ = model.start(rows(1, 5))
    torch.testing.assert_close(again.logp_NV, want.logp_NV, atol=1e-4, rtol=1e-5)
    assert not torch.allclose(step.logp_NV, again.logp_NV, atol=1e-2)


def test_the_engine_of_a_model_is_built_once():
    model = made()
    engines = [model.start([[1, 2]])[1].engine for _ in range(2)]
    assert engines[0] is engines[1]
    with torch.no_grad():
        model.norm.weight.mul_(2)  # the engine reads the parameter's memory
    assert model.start([[1, 2]])[1].engine is engines[0]
    model.train()
    assert model.start([[1, 2]])[1].engine is engines[0]


def moved(model):
    model.to(torch.float64).to(torch.float32)


def swapped(model):
    model.blocks[0].feed_forward.up.weight.data = torch.randn_like(model.blocks[0].feed_forward.up.weight)


def adapted(model):
    add_adapters(model, LoRA(rank=2))
    for part in find_adapters(model).values():
        nn.init.normal_(part.lora_b, std=0.3)
    merge_adapters(model)


@pytest.mark.parametrize("change", [moved, swapped, adapted])
def test_a_model_with_other_parameters_gets_a_new_engine(change):
    model = made()
    before = model.start([[1, 2]])[1].engine
    change(model)
    step, state = model.start([[1, 2]])
    assert state.engine is not before
    model.engine = "torch"
    torch.testing.assert_close(step.logp_NV, model.start([[1, 2]])[0].logp_NV, atol=1e-4, rtol=1e-5)


def test_several_threads_may_decode_with_one_engine():
    model = made()
    texts = rows(8, 20)

    def last(text):
        step, state = model.start([text[:3]])
        for token in text[3:]:
            step, state = model.step(state, torch.tensor([token]))
        return step.logp_NV

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(last, texts))
    assert all(torch.equal(logp, last(text)) for logp, text in zip(found, texts, strict=True))


def test_a_text_stays_with_its_engine():
    model = made()
    model.engine = "compiled"
    _, state = model.start(rows(2, 5))
    model.engine = "torch"
    step, state = model.step(state, torch.tensor([1, 2]))
    assert type(state).__name__ == "CompiledState"
    assert step.logp_NV.shape == (2, 31)


def hooked(model):
    model.blocks[0].register_forward_hook(lambda *_: None)


def half(model):
    model.half()


def replaced(model):
    model.blocks[1].feed_forward = nn.Identity()


def strided(model):
    up = model.blocks[0].feed_forward.up
    up.weight = nn.Parameter(up.weight.detach().t().contiguous().t())


def resized(model):
    model.embed.weight = nn.Parameter(torch.zeros(40, 24))


def dropping(model):
    model.blocks[0].dropout.p = 0.1
    model.blocks[0].dropout.train()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (hooked, "blocks.0 has hooks"),
        (half, "embed.weight is float16 on cpu"),
        (replaced, "blocks.1.feed_forward is a Identity"),
        (strided, "blocks.0.feed_forward.up.weight is not contiguous"),
        (resized, "has shape \\(40, 24\\), expected \\(31, 24\\)"),
        (dropping, "blocks.0.dropout is in train mode"),
    ],
)
def test_the_reason_why_a_model_cannot_run_compiled_is_given(change, why):
    model = made()
    assert engine_obstacle(model) is None
    change(model)
    model.engine = "compiled"
    with pytest.raises(ValueError, match=why):
        model.start([[1, 2]])


UNCOMPILED = {
    "Trigram": TrigramConfig(vocab_size=31, width=4, inner_width=4),
    "RNNLM": RNNConfig(vocab_size=31, width=4),
    "RNNSeq2Seq": RNNSeq2SeqConfig(vocab_size=31, width=4, bos=1, eos=2),
}


@pytest.mark.parametrize("name", UNCOMPILED)
def test_models_without_a_compiled_step_run_on_torch_and_refuse_compiled(name):
    model = UNCOMPILED[name].build()
    with pytest.raises(ValueError, match=f"{name} has no compiled step; choose engine='torch'"):
        model.engine = "compiled"
    assert model.engine == "torch"
    model.engine = "torch"


def test_without_numba_and_under_autocast_it_is_torch(monkeypatch):
    model = made()
    with torch.autocast("cpu"):
        assert engine_obstacle(model) == "autocast is on"
    monkeypatch.setattr("unspool.engine.engine_choice.compiler_obstacle", lambda: "no compiler")
    assert engine_obstacle(model) == "no compiler"
    assert model.engine == "torch"
    model.start([[1, 2]])


def test_an_unknown_engine_is_refused():
    assert parse_engine(None) is None
    with pytest.raises(ValueError, match="choose from torch, compiled"):
        made().engine = "cuda"


def test_a_copy_keeps_the_engine():
    model = made()
    model.engine = "compiled"
    assert copy.deepcopy(model).engine == "compiled"


def test_numba_is_not_imported_before_it_is_used():
    program = "import sys, unspool as us; us.models.TransformerLM; assert 'numba' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_a_model_runs_compiled_if_it_can():
    model = made()
    assert model.engine == "compiled"
    model.engine = "torch"
    assert model.engine == "torch"
    model.engine = None
    assert model.to(torch.bfloat16).engine == "torch"


def test_weights_of_another_shape_than_the_models_are_an_obstacle_stored_or_not():
    model = made()
    model.blocks[0].feed_forward.down = StoredLinear((quantise_int8(torch.ones(9, 7)),))
    assert "(9, 7)" in engine_obstacle(model)
    assert model.engine == "torch"


@pytest.mark.parametrize("name", SHAPES)
def test_weights_in_int8_say_the_same_on_both_engines(name):
    model = made(**SHAPES[name])
    for path, part in list(model.named_modules()):
        if isinstance(part, nn.Linear):
            parent, _, last = path.rpartition(".")
            stored = StoredLinear((quantise_int8(part.weight),), part.bias)
            setattr(model.get_submodule(parent), last, stored)
    prompts = [[3, 1, 4, 1, 5], [9, 2], [6, 5, 3, 5]]
    told = {}
    for engine in ENGINES:
        model.engine = engine
        step, state = model.start(prompts)
        after, _ = model.step(state, step.logp_NV.argmax(1))
        told[engine] = torch.cat((step.logp_NV, after.logp_NV))
    # The compiled engine rounds activations to 16 bits, and keys and values to float16.
    torch.testing.assert_close(told["compiled"], told["torch"], atol=3e-3, rtol=1e-4)


@pytest.mark.parametrize("attention", ["query_key", "keyless"])
@pytest.mark.parametrize("rows", [1, 64])
def test_a_context_is_filled_to_its_end(rows, attention):
    model = made(positions="learned", attention=attention)
    texts = [[(7 * n + t) % 31 for t in range(80)] for n in range(rows)]
    step, state = model.start([text[: 40 + n % 7] for n, text in enumerate(texts)])
    whole = model.forward(torch.tensor(texts))
    for t in range(34):  # the longest rows have 80 tokens then
        tokens = torch.tensor([text[40 + n % 7 + t] for n, text in enumerate(texts)])
        step, state = model.step(state, tokens)
    told = torch.stack([whole[n, 40 + n % 7 + 33] for n in range(rows)])
    torch.testing.assert_close(step.logp_NV, told, atol=1e-4, rtol=1e-4)
    longest = 40 + min(rows - 1, 6) + 34
    for _ in range(80 - longest):
        _, state = model.step(state, torch.zeros(rows, dtype=torch.long))
    with pytest.raises(ValueError, match="80"):
        model.step(state, torch.zeros(rows, dtype=torch.long))


@pytest.mark.parametrize("window", [1, 2, 31, 32, 33, 63, 79, 80, 500])
def test_windows_shorter_and_longer_than_texts_of_different_lengths_to_the_end_of_a_context(window):
    """A context of 80 tokens; steps are compared with one pass of torch over whole texts."""
    model = made(window=window, windowed_layers=(0,), qk_norm="head", head_width=8)
    texts = torch.randint(31, (3, 80))
    whole = model.forward(texts)
    lengths = (80 - 24, 1, 40)
    step, state = model.start([text[:length] for text, length in zip(texts.tolist(), lengths, strict=True)])
    for t in range(24):
        want = torch.stack([whole[n, length + t - 1] for n, length in enumerate(lengths)])
        torch.testing.assert_close(step.logp_NV, want, atol=1e-4, rtol=1e-4)
        tokens = torch.stack([texts[n, length + t] for n, length in enumerate(lengths)])
        step, state = model.step(state, tokens)
    torch.testing.assert_close(step.logp_NV[0], whole[0, 79], atol=1e-4, rtol=1e-4)
    model.rewind(state, 20)
    again, _ = model.extend(state, texts[:, :20])
    alone, _ = model.start([[*texts[1, :5].tolist(), *texts[1, :20].tolist()]])
    assert torch.equal(again.logp_NV[39], alone.logp_NV[0])


def test_every_shape_that_a_transformer_can_be_given_has_kernels():
    for name, options in SHAPES.items():
        assert engine_obstacle(made(**options)) is None, name


def test_options_that_are_whole_numbers_are_compiled_once():
    """numba would compile all anew for a cap of 2 instead of 2.0."""
    model = made(attention_cap=2, embed_scale=3, norm_eps=0, head=HEADS["capped"](4))
    shape = compiled_language_model(model).shape
    assert [type(it) for it in shape] == [type(it) for it in compiled_language_model(made()).shape]


@pytest.mark.parametrize("rows", [1, 64])
def test_a_large_vocabulary_and_many_rows(rows):
    model = made(vocab_size=200_000, width=8, head_width=4, inner_width=16)
    prompts = [[n * 3000, 199_999, 0] for n in range(rows)]
    told = {}
    for engine in ENGINES:
        model.engine = engine
        told[engine] = model.start(prompts)[0].logp_NV
    torch.testing.assert_close(told["compiled"], told["torch"], atol=1e-4, rtol=1e-4)
