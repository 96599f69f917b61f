import pytest
import torch

from unspool.heads import SoftmaxHeadConfig
from unspool.models.loading.causal_families import GPT2, LLAMA
from unspool.models.loading.seq2seq_families import BART_NAMES
from unspool.models.loading.weight_layout import SourcePart, WeightLayout, plan_tensors
from unspool.models.transformer_lm import TransformerConfig
from unspool.models.transformer_seq2seq import TransformerSeq2SeqConfig

SHAPE = {
    "vocab_size": 11,
    "width": 8,
    "layers": 2,
    "heads": 4,
    "kv_heads": 2,
    "head_width": 6,
    "inner_width": 10,
    "context": 16,
}
GPT2_SHAPE = {"norm": "layer", "positions": "learned", "activation": "gelu_tanh", "bias": True, "kv_heads": 4}


def plan(config, layout):
    shapes = {name: tuple(it.shape) for name, it in config.build().state_dict().items()}
    return {target.name: target for target in plan_tensors(config, shapes, layout)}


def targets(layout, **changes):
    return plan(TransformerConfig(**SHAPE | changes), layout)


def test_queries_keys_and_values_are_stacked():
    qkv = targets(LLAMA)["blocks.1.attention.qkv.weight"]
    assert qkv.shape == (48, 8)
    assert [(part.source, part.shape) for part in qkv.parts] == [
        ("model.layers.1.self_attn.q_proj.weight", (24, 8)),
        ("model.layers.1.self_attn.k_proj.weight", (12, 8)),
        ("model.layers.1.self_attn.v_proj.weight", (12, 8)),
    ]


def test_gate_is_stacked_above_up():
    up = targets(LLAMA)["blocks.0.feed_forward.up.weight"]
    assert up.shape == (20, 8)
    assert [part.source for part in up.parts] == [
        "model.layers.0.mlp.gate_proj.weight",
        "model.layers.0.mlp.up_proj.weight",
    ]


def test_only_queries_and_keys_are_interleaved():
    qkv = targets(WeightLayout(LLAMA.names, interleaved=True), qkv_bias=True)
    for kind in ("weight", "bias"):
        assert [part.heads for part in qkv[f"blocks.0.attention.qkv.{kind}"].parts] == [4, 2, 0]
    assert {part.heads for name in qkv if "qkv" not in name for part in qkv[name].parts} == {0}


def test_only_projections_are_transposed():
    tensors = targets(GPT2, **GPT2_SHAPE)
    (qkv,) = tensors["blocks.0.attention.qkv.weight"].parts
    assert (qkv.shape, qkv.stored_shape) == ((72, 8), (8, 72))
    assert SourcePart("x", (4, 3), skipped_rows=2).stored_shape == (6, 3)
    assert SourcePart("x", (4,), is_row=True).stored_shape == (1, 4)
    (embed,) = tensors["embed.weight"].parts
    assert embed.stored_shape == (11, 8)
    (bias,) = tensors["blocks.0.feed_forward.up.bias"].parts
    assert bias.stored_shape == (10,)


def test_a_missing_bias_is_zero():
    layout = WeightLayout(LLAMA.names, unbiased=frozenset({"feed_forward.down"}))
    tensors = targets(layout, bias=True)
    assert tensors["blocks.1.feed_forward.down.bias"].parts == ()
    assert tensors["blocks.1.attention.out.bias"].parts == (
        SourcePart("model.layers.1.self_attn.o_proj.bias", (8,)),
    )


@pytest.mark.parametrize(
    ("layout", "changes"),
    [
        (LLAMA, {}),
        (LLAMA, {"tied": False, "bias": True}),
        (LLAMA, {"qkv_bias": True}),
        (GPT2, GPT2_SHAPE),
        (GPT2, GPT2_SHAPE | {"tied": False}),
    ],
)
def test_parts_fill_every_tensor(layout, changes):
    for target in targets(layout, **changes).values():
        stacked = torch.cat([torch.empty(part.shape) for part in target.parts])
        assert tuple(stacked.shape) == target.shape
        split = target.split(stacked)
        assert [tuple(it.shape) for it in split] == [part.shape for part in target.parts]


BART = TransformerSeq2SeqConfig(
    vocab_size=11,
    width=8,
    heads=2,
    inner_width=10,
    encoder_layers=1,
    decoder_layers=2,
    context=16,
    positions="learned",
    norm="layer",
    norm_place="post",
    bias=True,
    embed_norm=True,
    tied=False,
    head=SoftmaxHeadConfig(bias=True),
    bos=2,
    eos=2,
)
LAYOUT = WeightLayout(BART_NAMES, skipped_rows={"positions": 2})


def test_seq2seq_keys_are_stacked_above_values_and_rows_skipped():
    tensors = plan(BART, LAYOUT)
    kv = tensors["blocks.1.cross_attention.kv.weight"]
    assert kv.shape == (16, 8)
    assert [(part.source, part.shape) for part in kv.parts] == [
        ("model.decoder.layers.1.encoder_attn.k_proj.weight", (8, 8)),
        ("model.decoder.layers.1.encoder_attn.v_proj.weight", (8, 8)),
    ]
    (places,) = tensors["positions.weight"].parts
    assert (places.shape, places.stored_shape) == ((16, 8), (18, 8))
    (bias,) = tensors["head.bias"].parts
    assert (bias.source, bias.shape, bias.stored_shape) == ("final_logits_bias", (11,), (1, 11))


def test_a_layout_without_a_name_is_an_error():
    with pytest.raises(KeyError, match="embed"):
        plan(BART, WeightLayout({name: it for name, it in BART_NAMES.items() if name != "embed"}))
