"""The compiled encoder–decoder beside torch's; language models are compared in test_engine.py."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from unspool.engine.attention_tiles import BLOCK
from unspool.engine.compiled_transformer import compiled_encoder
from unspool.engine.engine_choice import ENGINES
from unspool.engine.weight_table import SOURCE_KV, WEIGHT
from unspool.heads import HEADS
from unspool.models.transformer_seq2seq import TransformerSeq2SeqConfig

V, BOS, EOS = 31, 1, 2
PAIRS = TransformerSeq2SeqConfig(
    vocab_size=V,
    width=16,
    heads=4,
    kv_heads=2,
    inner_width=24,
    encoder_layers=2,
    decoder_layers=2,
    bos=BOS,
    eos=EOS,
)
SHAPES = {
    "llama": {},
    "vaswani": {
        "kv_heads": None,
        "norm": "layer",
        "norm_place": "post",
        "positions": "sinusoidal",
        "activation": "relu",
        "bias": True,
        "tied": False,
    },
    "sandwich": {
        "norm_place": "both",
        "positions": "learned",
        "context": 80,
        "activation": "gelu",
        "qkv_bias": True,
    },
    "bag": {"positions": "none", "head_width": 5, "decoder_layers": 1, "kv_heads": 1},
    "deep encoder": {"encoder_layers": 3, "decoder_layers": 1, "activation": "gelu_tanh", "bias": True},
    "t5": {
        "positions": "relative",
        "kv_heads": None,
        "relative_buckets": 8,
        "relative_distance": 12,
        "attention_cap": 1.5,
        "activation": "geglu",
    },
    "normalised queries": {"qk_norm": "head", "norm_place": "after", "activation": "geglu"},
    "all of them": {
        "qk_norm": "whole",
        "attention_cap": 1.5,
        "rotary_width": 2,
        "head": HEADS["capped"](3.0),
    },
    "keyless": {"attention": "keyless", "positions": "sinusoidal"},
    "keyless, wide heads": {
        "attention": "keyless",
        "positions": "learned",
        "context": 80,
        "head_width": 20,
        "norm_place": "post",
        "bias": True,
    },
    "sources apart": {"source_vocab_size": V + 9},
    "bart": {
        "kv_heads": None,
        "norm": "layer",
        "norm_place": "post",
        "positions": "learned",
        "context": 80,
        "activation": "gelu",
        "bias": True,
        "embed_scale": 1.0,
        "embed_norm": True,
    },
    "marian": {
        "kv_heads": None,
        "norm": "layer",
        "norm_place": "post",
        "positions": "sinusoidal_halves",
        "activation": "silu",
        "bias": True,
        "head": HEADS["softmax"](bias=True),
    },
}
SOURCES = [[3, 4, 5, 6, 7] * 4, [4], [6, 3, 3], [9, 8] * 8]


def made(**options):
    torch.manual_seed(0)
    model = replace(PAIRS, **options).build().eval()
    for weight in model.parameters():  # norms' gains and biases, too
        nn.init.normal_(weight, std=0.3)
    return model


@pytest.fixture(params=SHAPES)
def model(request):
    return made(**SHAPES[request.param])


def walked(model, engine):
    """Everything that a model says on a walk with all that may happen to a state."""
    model.engine = engine
    step, state = model.start(SOURCES)
    said = [step]
    for tokens in ([1, 2, 3, 4], [4, 5, 6, 7]):
        step, state = model.step(state, torch.tensor(tokens))
        said.append(step)
    state = state.select(torch.tensor([2, 0, 0, 1, 2]))
    for _ in range(20):
        step, state = model.step(state, torch.tensor([7, 8, 9, 10, 11]))
        said.append(step)
    step, state = model.extend(state, torch.tensor([[1, 2, 3]] * 5))
    said.append(step)
    state = model.rewind(state, 2).select(torch.tensor([4, 1]))
    step, state = model.step(state, torch.tensor([12, 13]))
    return [*said, step]


def test_both_engines_agree_over_many_steps(model):
    for ours, want in zip(walked(model, "compiled"), walked(model, "torch"), strict=True):
        torch.testing.assert_close(ours.logp_NV, want.logp_NV, atol=1e-4, rtol=1e-5)
        torch.testing.assert_close(ours.hidden_ND, want.hidden_ND, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(ours.log_norm_N, want.log_norm_N, atol=1e-4, rtol=1e-5)
        assert (ours.attention is None) == (want.attention is None)
        if want.attention is not None:
            torch.testing.assert_close(ours.attention, want.attention, atol=1e-5, rtol=1e-4)
            assert torch.equal(ours.attention != 0, want.attention != 0)


def test_log_probabilities_are_bit_identical_alone_and_anywhere_in_a_batch(model):
    model.engine = "compiled"
    alone = [model.start([source])[0] for source in SOURCES]
    for order in ([0, 1, 2, 3], [3, 0, 2, 1], [1, 1, 0] * 9 + [2]):
        together, state = model.start([SOURCES[n] for n in order])
        stepped, _ = model.step(state, torch.tensor([5 + n for n in order]))
        for place, n in enumerate(order):
            assert torch.equal(together.logp_NV[place], alone[n].logp_NV[0])
            assert torch.equal(together.hidden_ND[place], alone[n].hidden_ND[0])
            length = len(SOURCES[n]) + 1
            assert torch.equal(together.attention[place, :length], alone[n].attention[0])
            assert not together.attention[place, length:].any()
            next_alone, _ = model.step(model.start([SOURCES[n]])[1], torch.tensor([5 + n]))
            assert torch.equal(stepped.logp_NV[place], next_alone.logp_NV[0])


def test_rows_join_leave_and_repeat_and_continue_as_if_alone(model):
    model.engine = "compiled"
    _, state = model.start(SOURCES[:2])
    _, state = model.step(state, torch.tensor([5, 6]))
    _, late = model.start(SOURCES[3:])
    state = model.joining.join([state, late]).select(torch.tensor([2, 0, 2, 1]))
    step, state = model.step(state, torch.tensor([7, 8, 9, 10]))
    for place, (source, said) in enumerate(((3, [7]), (0, [5, 8]), (3, [9]), (1, [6, 10]))):
        want, alone = model.start([SOURCES[source]])
        for token in said:
            want, alone = model.step(alone, torch.tensor([token]))
        assert torch.equal(step.logp_NV[place], want.logp_NV[0])


def test_a_beam_shares_its_source():
    model = made()
    model.engine = "compiled"
    _, state = model.start([[5] * 40])
    before = state.sources.used
    state = state.select(torch.zeros(16, dtype=torch.long))
    _, state = model.step(state, torch.arange(16))
    assert state.sources.used == before == -(-41 // BLOCK)
    state.select(torch.tensor([], dtype=torch.long))
    assert state.sources.used == 0


@pytest.mark.parametrize("head", HEADS)
def test_every_head_agrees_with_torch(head):
    model = made(head=HEADS[head]())
    found = []
    for engine in ENGINES:
        model.engine = engine
        step, state = model.start(SOURCES)
        found.append((step, model.step(state, torch.tensor([1, 2, 3, 4]))[0]))
    for ours, want in zip(*found, strict=True):
        torch.testing.assert_close(ours.logp_NV, want.logp_NV, atol=1e-4, rtol=1e-5)
        torch.testing.assert_close(ours.attention, want.attention, atol=1e-5, rtol=1e-4)
        assert (ours.log_norm_N is None) == (want.log_norm_N is None)


def test_a_source_as_long_as_its_context_and_no_longer():
    model = made(**SHAPES["sandwich"])
    found = []
    for engine in ENGINES:
        model.engine = engine
        found.append(model.start([[3] * 79])[0].logp_NV)
        with pytest.raises(ValueError, match="at most 80"):
            model.start([[3] * 80])
    torch.testing.assert_close(*found, atol=1e-4, rtol=1e-5)


def test_a_token_that_sources_do_not_have_is_refused():
    model = made(source_vocab_size=V + 9)
    model.engine = "compiled"
    model.start([[V + 8]])
    with pytest.raises(IndexError, match="the model has 0 to 39"):
        model.start([[V + 9]])


def test_an_encoders_table_knows_what_every_layer_of_the_decoder_reads():
    model = made(encoder_layers=3)
    table = compiled_encoder(model).engine.weights.table
    assert len(table) == 3 + 1 + 2
    for layer, block in enumerate(model.blocks):
        assert table[4 + layer, SOURCE_KV, WEIGHT] == block.cross_attention.kv.weight.data_ptr()
