from __future__ import annotations

import math

import gguf
import numpy as np
import pytest
import torch

import unspool as us
from unspool.engine.stored_weights import StoredMatrix
from unspool.models.loading.assembly import build_model
from unspool.models.loading.gguf_file import open_gguf
from unspool.models.loading.gguf_weights import deinterleaved_rows, gguf_config, gguf_weights
from unspool.models.loading.model_names import package_file
from unspool.nn.positions import RotaryScaling


def permute(weights, heads):
    """As llama.cpp's converter reorders the rows of queries and keys."""
    return weights.reshape(heads, 2, -1).swapaxes(1, 2).reshape(-1)


def loaded(path):
    config, state = gguf_weights(open_gguf(path))
    return build_model(config, state, None, str(path))


def test_paired_rows_by_hand():
    # One head of width 6 is stored as pairs (0 3) (1 4) (2 5) of our rows.
    assert deinterleaved_rows(1, 6).tolist() == [0, 2, 4, 1, 3, 5]
    rows = np.arange(24)
    assert permute(rows, 2)[deinterleaved_rows(2, 24).numpy()].tolist() == rows.tolist()


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1"])
def test_llama_logp_equals_that_of_transformers(make_twin, write_gguf, kind):
    twin = make_twin("Llama")
    path = write_gguf(twin, "llama", kind=kind)
    twin.assert_equals(loaded(path))


@pytest.mark.parametrize("kind", ["Q5_0", "Q5_1"])
def test_a_type_without_a_kernel_becomes_int8_and_writes_the_text_of_both_engines(
    make_twin, write_gguf, kind
):
    twin = make_twin("Llama")
    path = write_gguf(twin, "llama", kind=kind)
    model = us.load(str(path), weights="stored", engine="compiled")
    kinds = {
        piece.format.name
        for part in model.modules()
        if isinstance(part, StoredMatrix)
        for piece in part.pieces
    }
    assert kinds == {"INT8"}
    written = us.generate(model, [3, 1, 4, 1, 5], us.Greedy(), max_new_tokens=12)
    packed = us.load(str(path), weights="int8", engine="compiled")
    assert us.generate(packed, [3, 1, 4, 1, 5], us.Greedy(), max_new_tokens=12).logps == written.logps
    twin.assert_equals(model, atol=0.2)  # random weights, rounded to 8 bits
    model.engine = "torch"
    again = us.generate(model, [3, 1, 4, 1, 5], us.Greedy(), max_new_tokens=12)
    assert again.tokens == written.tokens
    assert again.logps == pytest.approx(written.logps, abs=1e-4)


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
def test_every_family_equals_transformers(make_twin, write_gguf, family, architecture, changes):
    twin = make_twin(family, **changes)
    twin.assert_equals(loaded(write_gguf(twin, architecture)))


def test_a_wide_head_is_read_from_the_metadata(make_twin, write_gguf):
    twin = make_twin("Llama", head_dim=12)
    path = write_gguf(twin, "llama", **{"attention.key_length": 12, "attention.value_length": 12})
    assert gguf_config(open_gguf(path)).head_width == 12
    twin.assert_equals(loaded(path))


def test_a_sliding_window_leaves_the_context_alone(make_twin, write_gguf):
    path = write_gguf(make_twin("Llama"), "llama", **{"attention.sliding_window": 16})
    config = gguf_config(open_gguf(path))
    assert (config.context, config.window, config.windowed_layers) == (128, 16, (0, 1))


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


def test_llama_3_frequencies_are_recovered_from_their_table(make_twin, write_gguf):
    twin = make_twin("Llama", rope_parameters=LLAMA3)
    path = write_gguf(twin, "llama", extra={"rope_freqs.weight": stretches(8)})
    assert gguf_config(open_gguf(path)).rotary_scaling == RotaryScaling(32.0, 1.0, 4.0, 8192)
    twin.assert_equals(loaded(path))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (stretches(8, low=1.5), "does not stretch frequencies as Llama 3 does"),
        (stretches(6), r"expected \[4\]"),
    ],
)
def test_other_tables_of_frequencies_are_refused(make_twin, write_gguf, table, message):
    path = write_gguf(
        make_twin("Llama"), "llama", extra={"rope_freqs.weight": table}, **{"rope.freq_base": 500000.0}
    )
    with pytest.raises(ValueError, match=message):
        gguf_config(open_gguf(path))


def test_qwen3_normalises_queries_and_keys(make_twin, write_gguf):
    twin = make_twin("Qwen3", head_dim=8)
    path = write_gguf(twin, "qwen3", **{"attention.key_length": 8})
    assert gguf_config(open_gguf(path)).qk_norm == "head"
    twin.assert_equals(loaded(path))


def test_granite_has_factors_everywhere(make_twin, write_gguf):
    factors = {"embedding_multiplier": 3.0, "residual_multiplier": 0.4, "logits_scaling": 2.0}
    twin = make_twin("Granite", attention_multiplier=0.2, **factors)
    said = {"embedding_scale": 3.0, "residual_scale": 0.4, "logit_scale": 2.0, "attention.scale": 0.2}
    twin.assert_equals(loaded(write_gguf(twin, "granite", **said)))


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
def test_metadata_that_cannot_be_followed_is_refused(make_twin, write_gguf, changes, message):
    path = write_gguf(make_twin("Llama"), "llama", **changes)
    with pytest.raises(ValueError, match=message) as caught:
        gguf_weights(open_gguf(path))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", ["token_embd.weight", "blk.1.attn_k.weight"])
def test_a_missing_tensor_is_named(make_twin, write_gguf, name):
    path = write_gguf(make_twin("Llama"), "llama", drop=(name,))
    with pytest.raises(ValueError, match=rf"tensor '{name}'.*is missing"):
        gguf_weights(open_gguf(path))


def test_an_unknown_architecture_is_refused_with_the_list(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(
        ValueError, match="architecture 'mamba' is unknown; known are gemma2, gemma3, gpt2, granite, llama"
    ):
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
