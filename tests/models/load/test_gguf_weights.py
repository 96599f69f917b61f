from __future__ import annotations

import math

import gguf
import numpy as np
import pytest
import torch
from gguf.constants import GGMLQuantizationType

from unspool.models.load.assembly import build
from unspool.models.load.gguf_file import open_gguf
from unspool.models.load.gguf_weights import gguf_config, gguf_weights, paired_rows
from unspool.models.load.packages import package_file
from unspool.nn.positions import RotaryScaling

LLAMA_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
GPT2_NAMES = {
    "transformer.wte": "token_embd",
    "transformer.wpe": "position_embd",
    "transformer.ln_f": "output_norm",
    "lm_head": "output",
    "ln_1": "attn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "ln_2": "ffn_norm",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}


def permute(weights, heads):
    """As llama.cpp's converter reorders the rows of queries and keys."""
    return (
        weights.reshape(heads, 2, len(weights) // heads // 2, *weights.shape[1:])
        .swapaxes(1, 2)
        .reshape(weights.shape)
    )


def name_of(name, names):
    """blk.3.attn_q.weight for model.layers.3.self_attn.q_proj.weight."""
    module, _, kind = name.rpartition(".")
    if module in names:
        return f"{names[module]}.{kind}"
    for prefix in ("model.layers.", "transformer.h."):
        if module.startswith(prefix):
            layer, _, inner = module.removeprefix(prefix).partition(".")
            return f"blk.{layer}.{names[inner]}.{kind}"
    raise AssertionError(name)


@pytest.fixture
def write(tmp_path):
    """Write a twin to a GGUF file as llama.cpp's converter would, its matrices quantised."""

    def write(twin, architecture, *, kind="F32", drop=(), extra=None, **changes):
        model, config = twin.model, twin.model.config
        path = tmp_path / "twin.gguf"
        writer = gguf.GGUFWriter(path, architecture)
        gpt2 = architecture == "gpt2"
        pairs = {
            "block_count": config.num_hidden_layers,
            "context_length": config.max_position_embeddings,
            "embedding_length": config.hidden_size,
            "feed_forward_length": 4 * config.hidden_size if gpt2 else config.intermediate_size,
            "attention.head_count": config.num_attention_heads,
            **({} if gpt2 else {"attention.head_count_kv": config.num_key_value_heads}),
            f"attention.layer_norm_{'' if gpt2 else 'rms_'}epsilon": (
                config.layer_norm_epsilon if gpt2 else config.rms_norm_eps
            ),
            **({} if gpt2 else {"rope.freq_base": config.rope_parameters["rope_theta"]}),
            **changes,
        }
        for key, value in pairs.items():
            if value is not None:
                add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}[type(value)]
                add(f"{architecture}.{key}", value)
        tied = config.tie_word_embeddings
        for name, tensor in {**model.state_dict(), **(extra or {})}.items():
            if (tied and name == "lm_head.weight") or name in drop:
                continue
            data = tensor.numpy()
            if gpt2 and data.ndim == 2 and ".h." in name:
                data = data.T
            if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
                heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
                data = permute(data, heads)
            stored = GGMLQuantizationType[kind if data.ndim == 2 else "F32"]
            packed = gguf.quantize(np.ascontiguousarray(data), stored)
            stored_name = (
                name if name in (extra or {}) else name_of(name, GPT2_NAMES if gpt2 else LLAMA_NAMES)
            )
            writer.add_tensor(stored_name, packed, raw_dtype=stored)
            if kind != "F32" and data.ndim == 2:
                # The twin keeps what the quantisation has left of its numbers.
                left = torch.from_numpy(gguf.dequantize(packed, stored).copy())
                if "q_proj" in name or "k_proj" in name:
                    left = left[torch.from_numpy(paired_rows(heads, len(left)))]
                tensor.copy_(left)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return write


def loaded(path):
    config, state = gguf_weights(open_gguf(path))
    return build(config, state, None, str(path))


def test_paired_rows_by_hand():
    # One head of width 6 is stored as pairs (0 3) (1 4) (2 5) of our rows.
    assert paired_rows(1, 6).tolist() == [0, 2, 4, 1, 3, 5]
    rows = np.arange(24)
    assert permute(rows, 2)[paired_rows(2, 24)].tolist() == rows.tolist()


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1"])
def test_llama_logp_equals_that_of_transformers(make_twin, write, kind):
    twin = make_twin("Llama")
    path = write(twin, "llama", kind=kind)
    twin.assert_equals(loaded(path))


@pytest.mark.parametrize(
    ("family", "architecture", "changes"),
    [
        ("Llama", "llama", {"tie_word_embeddings": True}),
        ("Llama", "llama", {"attention_bias": True}),
        ("Llama", "llama", {"mlp_bias": True, "attention_bias": True}),
        ("Llama", "llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 321.0}}),
        ("Mistral", "llama", {"sliding_window": None}),
        ("Qwen2", "qwen2", {}),
        ("GPT2", "gpt2", {}),
        ("GPT2", "gpt2", {"tie_word_embeddings": False, "layer_norm_epsilon": 1e-3}),
    ],
)
def test_every_family_equals_transformers(make_twin, write, family, architecture, changes):
    twin = make_twin(family, **changes)
    twin.assert_equals(loaded(write(twin, architecture)))


def test_a_wide_head_is_read_from_the_metadata(make_twin, write):
    twin = make_twin("Llama", head_dim=12)
    path = write(twin, "llama", **{"attention.key_length": 12, "attention.value_length": 12})
    assert gguf_config(open_gguf(path)).head_width == 12
    twin.assert_equals(loaded(path))


def test_a_sliding_window_bounds_the_context(make_twin, write):
    path = write(make_twin("Llama"), "llama", **{"attention.sliding_window": 16})
    assert gguf_config(open_gguf(path)).context == 16


# ── Llama 3's frequencies ─────────────────────────────────────────────────────────────────────────

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def stretches(head_width, base=500000.0, factor=32.0, low=1.0, high=4.0, context=8192):
    """The table that llama.cpp's converter writes."""
    table = []
    for i in range(0, head_width, 2):
        wave = 2 * math.pi * base ** (i / head_width)
        smooth = (context / wave - low) / (high - low)
        middle = 1 / ((1 - smooth) / factor + smooth) if 0 < smooth < 1 else None
        table.append(middle or (1.0 if smooth >= 1 else factor))
    return torch.tensor(table)


def test_llama_3_frequencies_are_recovered_from_their_table(make_twin, write):
    twin = make_twin("Llama", rope_parameters=LLAMA3)
    path = write(twin, "llama", extra={"rope_freqs.weight": stretches(8)})
    assert gguf_config(open_gguf(path)).rotary_scaling == RotaryScaling(32.0, 1.0, 4.0, 8192)
    twin.assert_equals(loaded(path))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (stretches(8, low=1.5), "does not stretch frequencies as Llama 3 does"),
        (stretches(6), r"expected \[4\]"),
    ],
)
def test_other_tables_of_frequencies_are_refused(make_twin, write, table, message):
    path = write(
        make_twin("Llama"), "llama", extra={"rope_freqs.weight": table}, **{"rope.freq_base": 500000.0}
    )
    with pytest.raises(ValueError, match=message):
        gguf_config(open_gguf(path))


# ── refusals ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"expert_count": 8}, r"llama\.expert_count is 8; expected 0"),
        ({"rope.scaling.type": "yarn"}, r"llama\.rope\.scaling\.type is 'yarn'; expected 'none'"),
        ({"rope.dimension_count": 4}, r"llama\.rope\.dimension_count is 4; expected 8"),
        ({"attention.value_length": 4}, r"llama\.attention\.value_length is 4; expected 8"),
        ({"block_count": None}, r"llama\.block_count is missing; expected a whole number"),
        ({"block_count": 3}, r"tensor 'blk\.2\.attn_norm\.weight' of shape \[32\] is missing"),
        ({"block_count": 2**31 - 1}, r"tensor 'blk\.2\.attn_norm\.weight' of shape \[32\] is missing"),
        ({"block_count": 1}, r"without a place in the model.*blk\.1\.attn_k\.weight.* and 4 more"),
        (
            {"feed_forward_length": 64},
            r"'blk\.0\.ffn_gate\.weight' has shape \[96, 32\].*asks for \[64, 32\]",
        ),
        ({"embedding_length": "wide"}, r"llama\.embedding_length is 'wide'; expected a whole number"),
        ({"attention.head_count": 5}, "a width of 32 cannot be shared by 5 heads"),
        ({"attention.layer_norm_rms_epsilon": -1.0}, "expected a finite number above 0"),
    ],
)
def test_metadata_that_cannot_be_followed_is_refused(make_twin, write, changes, message):
    path = write(make_twin("Llama"), "llama", **changes)
    with pytest.raises(ValueError, match=message) as caught:
        gguf_weights(open_gguf(path))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", ["model.embed_tokens.weight", "model.layers.1.self_attn.k_proj.weight"])
def test_a_missing_tensor_is_named(make_twin, write, name):
    path = write(make_twin("Llama"), "llama", drop=(name,))
    with pytest.raises(ValueError, match=rf"{name_of(name, LLAMA_NAMES)}.*is missing"):
        gguf_weights(open_gguf(path))


def test_an_unknown_architecture_is_refused_with_the_list(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(ValueError, match="architecture 'mamba' is unknown; known are gpt2, llama, qwen2"):
        gguf_config(open_gguf(tmp_path / "x.gguf"))


def test_one_part_of_a_split_model_is_refused(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    writer.add_uint16("split.count", 3)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(ValueError, match="one part of several; merge them"):
        gguf_config(open_gguf(tmp_path / "x.gguf"))


# ── a real file ───────────────────────────────────────────────────────────────────────────────────


def test_smollm2_is_what_it_says():
    config = gguf_config(open_gguf(package_file("smollm2")))
    assert (config.layers, config.width, config.heads, config.kv_heads, config.head_width) == (
        30,
        576,
        9,
        3,
        64,
    )
    assert (config.inner_width, config.vocab_size, config.context) == (1536, 49152, 8192)
    assert (config.rotary_base, config.norm_eps, config.tied, config.bias) == (100000.0, 1e-5, True, False)
