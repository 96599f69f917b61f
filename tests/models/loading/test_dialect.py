import pytest
import torch

from unspool.models.loading.gguf_weights import _LLAMA_NAMES
from unspool.models.loading.huggingface_folder import _GPT2
from unspool.models.loading.llama_families import LLAMA
from unspool.models.loading.weight_layout import SourcePart, WeightLayout, plan_tensors
from unspool.models.loading.weights import storable_weights
from unspool.models.transformer_lm import TransformerConfig, TransformerLM

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
GPT2 = {"norm": "layer", "positions": "learned", "activation": "gelu_tanh", "bias": True, "kv_heads": 4}


def targets(dialect, **changes):
    return {target.name: target for target in plan_tensors(TransformerConfig(**SHAPE | changes), dialect)}


def test_queries_keys_and_values_are_stacked():
    qkv = targets(LLAMA)["blocks.1.attention.qkv.weight"]
    assert qkv.shape == (48, 8)
    assert [(piece.source, piece.shape) for piece in qkv.pieces] == [
        ("model.layers.1.self_attn.q_proj.weight", (24, 8)),
        ("model.layers.1.self_attn.k_proj.weight", (12, 8)),
        ("model.layers.1.self_attn.v_proj.weight", (12, 8)),
    ]


def test_gate_stands_above_up():
    up = targets(LLAMA)["blocks.0.feed_forward.up.weight"]
    assert up.shape == (20, 8)
    assert [piece.source for piece in up.pieces] == [
        "model.layers.0.mlp.gate_proj.weight",
        "model.layers.0.mlp.up_proj.weight",
    ]


def test_only_queries_and_keys_are_interleaved():
    qkv = targets(WeightLayout(_LLAMA_NAMES, interleaved=True), qkv_bias=True)
    for kind in ("weight", "bias"):
        assert [piece.heads for piece in qkv[f"blocks.0.attention.qkv.{kind}"].pieces] == [4, 2, 0]
    assert {piece.heads for name in qkv if "qkv" not in name for piece in qkv[name].pieces} == {0}


def test_projections_are_turned_and_embeddings_are_not():
    found = targets(_GPT2, **GPT2)
    (qkv,) = found["blocks.0.attention.qkv.weight"].pieces
    assert (qkv.shape, qkv.stored_shape) == ((72, 8), (8, 72))
    assert SourcePart("x", (4, 3), skipped=2).stored_shape == (6, 3)
    assert SourcePart("x", (4,), in_row=True).stored_shape == (1, 4)
    (embed,) = found["embed.weight"].pieces
    assert embed.stored_shape == (11, 8)
    (bias,) = found["blocks.0.feed_forward.up.bias"].pieces
    assert bias.stored_shape == (10,)


@pytest.mark.parametrize(("dialect", "changes"), [(LLAMA, {"tied": False}), (_GPT2, GPT2)])
def test_matrices_are_what_can_stay_as_it_is_stored(dialect, changes):
    found = targets(dialect, **changes)
    model = TransformerLM(TransformerConfig(**SHAPE | changes))
    assert {name for name, target in found.items() if target.matrix} == storable_weights(model)


def test_a_missing_bias_is_zero():
    dialect = WeightLayout(LLAMA.names, unbiased=frozenset({"feed_forward.down"}))
    found = targets(dialect, bias=True)
    assert found["blocks.1.feed_forward.down.bias"].pieces == (SourcePart(None, (8,)),)
    assert found["blocks.1.attention.out.bias"].pieces == (
        SourcePart("model.layers.1.self_attn.o_proj.bias", (8,)),
    )


@pytest.mark.parametrize(
    ("dialect", "changes"),
    [
        (LLAMA, {}),
        (LLAMA, {"tied": False, "bias": True}),
        (LLAMA, {"qkv_bias": True}),
        (_GPT2, GPT2),
        (_GPT2, GPT2 | {"tied": False}),
    ],
)
def test_the_plan_is_the_models_own_state(dialect, changes):
    """Every name and shape of the model, no other, and pieces that fill each tensor exactly."""
    found = targets(dialect, **changes)
    state = TransformerLM(TransformerConfig(**SHAPE | changes)).state_dict()
    assert {name: target.shape for name, target in found.items()} == {
        name: tuple(tensor.shape) for name, tensor in state.items()
    }
    for target in found.values():
        stacked = torch.cat([torch.empty(piece.shape) for piece in target.pieces])
        assert tuple(stacked.shape) == target.shape


def test_a_plan_of_many_layers_costs_nothing_until_it_is_walked():
    endless = plan_tensors(TransformerConfig(**SHAPE | {"layers": 2**31 - 1}), LLAMA)
    assert next(iter(endless)).name == "embed.weight"
