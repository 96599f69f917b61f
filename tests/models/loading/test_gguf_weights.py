"""GGUF families against transformers, with tensor names of the `gguf` package."""

from __future__ import annotations

import math

import gguf
import numpy as np
import pytest
import torch

import unspool as us
from unspool.engine.engine_choice import ENGINES
from unspool.engine.stored_weights import StoredMatrix
from unspool.engine.weight_formats import GGML
from unspool.models.loading.config_reader import UnsupportedModelError
from unspool.models.loading.gguf_file import deinterleaved_rows, open_gguf
from unspool.models.loading.gguf_weights import load_gguf, read_gguf_config
from unspool.models.loading.model_names import package_file
from unspool.nn.positions import RotaryScaling


def permute(weights, heads):
    """As llama.cpp's converter reorders the rows of queries and keys."""
    return weights.reshape(heads, 2, -1).swapaxes(1, 2).reshape(-1)


def loaded(path):
    return load_gguf(open_gguf(path))


def gguf_config(file):
    return read_gguf_config(file)[0]


def test_deinterleaved_rows_by_hand():
    # One head of width 6 is stored as pairs (0 3) (1 4) (2 5) of our rows.
    assert deinterleaved_rows(1, 6).tolist() == [0, 2, 4, 1, 3, 5]
    rows = np.arange(24)
    assert permute(rows, 2)[deinterleaved_rows(2, 24).numpy()].tolist() == rows.tolist()


ROUNDED_ACTIVATIONS = 3e-3
"""How much the log-probabilities of random weights change if activations are rounded to 16 bits."""


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_gguf_llama_log_probabilities_equal_transformers(make_hf_model, write_gguf, kind):
    hf = make_hf_model("Llama")
    path = write_gguf(hf, "llama", kind=kind)
    hf.assert_equals(loaded(path))


def test_types_without_a_kernel_become_int8(make_hf_model, write_gguf, monkeypatch):
    hf = make_hf_model("Llama")
    path = write_gguf(hf, "llama", kind="Q5_0")
    monkeypatch.delitem(GGML, gguf.GGMLQuantizationType.Q5_0)
    model = us.load(str(path), weights="stored", engine="compiled", kv_cache="float32")
    kinds = {
        piece.format.name
        for part in model.modules()
        if isinstance(part, StoredMatrix)
        for piece in part.pieces
    }
    assert kinds == {"INT8"}
    written = us.generate(model, [3, 1, 4, 1, 5], us.Greedy(), max_new_tokens=12)
    packed = us.load(str(path), weights="int8", engine="compiled", kv_cache="float32")
    assert us.generate(packed, [3, 1, 4, 1, 5], us.Greedy(), max_new_tokens=12).logps == written.logps
    hf.assert_equals(model, atol=0.2)  # random weights, rounded to 8 bits
    model.engine = "torch"
    again = us.generate(model, [3, 1, 4, 1, 5], us.Greedy(), max_new_tokens=12)
    assert again.tokens == written.tokens
    assert again.logps == pytest.approx(written.logps, abs=ROUNDED_ACTIVATIONS)


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
def test_gguf_architectures_equal_transformers(make_hf_model, write_gguf, family, architecture, changes):
    hf = make_hf_model(family, **changes)
    hf.assert_equals(loaded(write_gguf(hf, architecture)))


def test_head_width_is_read_from_the_metadata(make_hf_model, write_gguf):
    hf = make_hf_model("Llama", head_dim=12)
    path = write_gguf(hf, "llama", **{"attention.key_length": 12, "attention.value_length": 12})
    assert gguf_config(open_gguf(path)).head_width == 12
    hf.assert_equals(loaded(path))


def test_a_sliding_window_leaves_the_context_alone(make_hf_model, write_gguf):
    path = write_gguf(make_hf_model("Llama"), "llama", **{"attention.sliding_window": 16})
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


def test_llama_3_frequencies_are_recovered_from_their_table(make_hf_model, write_gguf):
    hf = make_hf_model("Llama", rope_parameters=LLAMA3)
    path = write_gguf(hf, "llama", extra={"rope_freqs.weight": stretches(8)})
    assert gguf_config(open_gguf(path)).rotary_scaling == RotaryScaling(32.0, 1.0, 4.0, 8192)
    hf.assert_equals(loaded(path))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (stretches(8, low=1.5), "does not scale frequencies as Llama 3 does"),
        (stretches(6), r"expected \[4\]"),
    ],
)
def test_other_tables_of_frequencies_are_refused(make_hf_model, write_gguf, table, message):
    path = write_gguf(
        make_hf_model("Llama"), "llama", extra={"rope_freqs.weight": table}, **{"rope.freq_base": 500000.0}
    )
    with pytest.raises(ValueError, match=message):
        gguf_config(open_gguf(path))


def test_qwen3_normalises_queries_and_keys(make_hf_model, write_gguf):
    hf = make_hf_model("Qwen3", head_dim=8)
    path = write_gguf(hf, "qwen3", **{"attention.key_length": 8})
    assert gguf_config(open_gguf(path)).qk_norm == "head"
    hf.assert_equals(loaded(path))


def test_granite_has_factors_everywhere(make_hf_model, write_gguf):
    factors = {"embedding_multiplier": 3.0, "residual_multiplier": 0.4, "logits_scaling": 2.0}
    hf = make_hf_model("Granite", attention_multiplier=0.2, **factors)
    metadata = {"embedding_scale": 3.0, "residual_scale": 0.4, "logit_scale": 2.0, "attention.scale": 0.2}
    hf.assert_equals(loaded(write_gguf(hf, "granite", **metadata)))


# ── refusals ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"expert_count": 8}, r"llama\.expert_count is 8; only 0"),
        ({"rope.scaling.type": "yarn"}, r"llama\.rope\.scaling\.type is 'yarn'; only 'none'"),
        ({"rope.dimension_count": 4}, r"llama\.rope\.dimension_count is 4; only 8 is supported"),
        ({"attention.value_length": 4}, r"llama\.attention\.value_length is 4; only 8 is supported"),
        ({"block_count": None}, r"llama\.block_count is missing; expected a whole number"),
        ({"block_count": 3}, r"tensor 'blk\.2\.attn_q\.weight' of shape \[32, 32\] is missing"),
        ({"block_count": 2**31 - 1}, r"layers=2147483647, but the file holds \d+ tensors"),
        ({"block_count": 1}, r"unexpected tensors blk\.1\.attn_k\.weight.* and 4 more"),
        (
            {"feed_forward_length": 64},
            r"'blk\.0\.ffn_gate\.weight' has shape \[96, 32\].*asks for \[64, 32\]",
        ),
        ({"embedding_length": "wide"}, r"llama\.embedding_length is 'wide'; expected a whole number"),
        ({"attention.head_count": 5}, "the width 32 is not a multiple of 5 heads"),
        ({"attention.layer_norm_rms_epsilon": -1.0}, "expected a finite number above 0"),
    ],
)
def test_metadata_that_cannot_be_followed_is_refused(make_hf_model, write_gguf, changes, message):
    path = write_gguf(make_hf_model("Llama"), "llama", **changes)
    with pytest.raises(ValueError, match=message) as caught:
        loaded(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", ["token_embd.weight", "blk.1.attn_k.weight"])
def test_a_missing_tensor_is_named(make_hf_model, write_gguf, name):
    path = write_gguf(make_hf_model("Llama"), "llama", drop=(name,))
    with pytest.raises(ValueError, match=rf"tensor '{name}'.*is missing"):
        loaded(path)


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
    with pytest.raises(ValueError, match="a split file; merge its parts"):
        gguf_config(open_gguf(tmp_path / "x.gguf"))


# ── a real file ───────────────────────────────────────────────────────────────────────────────────


def test_smollm2_config():
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


CAPS = {"attn_logit_softcapping": 3.0, "final_logit_softcapping": 5.0}
WINDOW = {"attention.sliding_window": 3, "attention.key_length": 8, "attention.value_length": 8}
PART = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
LINEAR = {
    "full_attention": {"rope_type": "linear", "rope_theta": 5000.0, "factor": 4.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 300.0},
}
STRETCHED = {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0, "rope.freq_base_swa": 300.0}
CASES = {
    # name: family, its options; architecture, what its metadata say beyond the sizes
    "olmo2": ("Olmo2", {}, "olmo2", {}),
    "phi3": ("Phi3", {}, "phi3", {"rope.dimension_count": 8}),
    "phi3, partial rotary": ("Phi3", {"rope_parameters": PART}, "phi3", {"rope.dimension_count": 4}),
    "phi3, windowed": (
        "Phi3",
        {"sliding_window": 3},
        "phi3",
        {"rope.dimension_count": 8, "attention.sliding_window": 3},
    ),
    "phi3, no window": ("Phi3", {}, "phi3", {"rope.dimension_count": 8, "attention.sliding_window": 0}),
    "smollm3": ("SmolLM3", {}, "smollm3", {}),
    "gemma2": ("Gemma2", CAPS, "gemma2", WINDOW | CAPS),
    "gemma3": ("Gemma3Text", {}, "gemma3", WINDOW),
    "gemma3, stretched": ("Gemma3Text", {"rope_parameters": LINEAR}, "gemma3", WINDOW | STRETCHED),
    "qwen3": ("Qwen3", {"head_dim": 8}, "qwen3", {"attention.key_length": 8}),
}


def compare(hf, ours, atol=1e-4):
    tokens = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5], [2, 7, 1, 8, 2, 8, 1, 8, 2, 8, 4]])
    with torch.no_grad():
        want = hf.model(tokens, use_cache=False).logits.float().log_softmax(-1)
    rows = tokens.tolist()
    step, state = ours.start([rows[0][:9], rows[1][:2]])
    for place in range(3):
        torch.testing.assert_close(step.logp_NV[0], want[0, 8 + place], atol=atol, rtol=0)
        torch.testing.assert_close(step.logp_NV[1], want[1, 1 + place], atol=atol, rtol=0)
        if place < 2:
            step, state = ours.step(state, torch.tensor([rows[0][9 + place], rows[1][2 + place]]))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", CASES)
def test_gguf_families_equal_transformers(make_hf_model, write_gguf, name, engine):
    family, options, architecture, metadata = CASES[name]
    hf = make_hf_model(family, **options)
    path = write_gguf(hf, architecture, **metadata)
    ours = us.load(path, engine=engine)
    assert ours.engine == engine
    hf.assert_equals(ours)
    compare(hf, ours)


@pytest.mark.parametrize("name", CASES)
def test_gguf_families_with_stored_weights(make_hf_model, write_gguf, name):
    family, options, architecture, metadata = CASES[name]
    hf = make_hf_model(family, **options)
    path = write_gguf(hf, architecture, kind="Q8_0", **metadata)
    ours = us.load(path, weights="stored", kv_cache="float32")
    assert ours.engine == "compiled"
    compare(hf, ours, atol=ROUNDED_ACTIVATIONS)
    ours.engine = "torch"
    compare(hf, ours)
    formats = {piece.format.name for part in ours.modules() for piece in getattr(part, "pieces", ())}
    assert formats == {"Q8_0"}


def test_window_and_no_rope_layers_follow_llama_cpp(make_hf_model, write_gguf):
    configs = {}
    for name in ("smollm3", "gemma2", "gemma3"):
        family, options, architecture, metadata = CASES[name]
        configs[name] = gguf_config(
            open_gguf(write_gguf(make_hf_model(family, **options), architecture, **metadata))
        )
    assert configs["smollm3"].unrotated_layers == (3,)
    assert (configs["gemma2"].window, configs["gemma2"].windowed_layers) == (3, (0,))
    assert configs["gemma3"].windowed_layers == (0, 1, 2, 3, 4, 6)
    assert configs["gemma3"].window_rotary_base == 10000.0
    assert configs["gemma3"].context == 128  # a window is no limit here


SMALL = {"hidden_size": 8, "intermediate_size": 8}


def test_the_largest_gemma_2_has_another_score_scale(make_hf_model, write_gguf):
    """√(D/H) = √2 instead of √8, with 4 heads of 8 numbers: queries are twice as large."""
    hf = make_hf_model("Gemma2", num_hidden_layers=46, **SMALL, **CAPS)
    state = loaded(write_gguf(hf, "gemma2", **WINDOW | CAPS)).state_dict()
    hf_model = hf.model.model.layers[45].self_attn
    torch.testing.assert_close(state["blocks.45.attention.qkv.weight"][:32], 2 * hf_model.q_proj.weight.data)
    torch.testing.assert_close(state["blocks.45.attention.qkv.weight"][32:48], hf_model.k_proj.weight.data)


def test_the_largest_gemma_3_has_another_score_scale(make_hf_model, write_gguf):
    hf = make_hf_model("Gemma3Text", num_hidden_layers=62, **SMALL)
    state = loaded(write_gguf(hf, "gemma3", **WINDOW)).state_dict()
    hf_model = hf.model.model.layers[61].self_attn
    torch.testing.assert_close(
        state["blocks.61.attention.norm.query.weight"], 2 * (1 + hf_model.q_norm.weight.data)
    )
    torch.testing.assert_close(state["blocks.61.attention.norm.key.weight"], 1 + hf_model.k_norm.weight.data)


def test_unsupported_gguf_options_are_rejected(make_hf_model, write_gguf):
    longrope = {"rope_factors_long.weight": torch.ones(4), "rope_factors_short.weight": torch.ones(4)}
    with pytest.raises(UnsupportedModelError, match=r"by tables \(longrope\)"):
        gguf_config(open_gguf(write_gguf(make_hf_model("Phi3"), "phi3", extra=longrope)))
    with pytest.raises(UnsupportedModelError, match=r"rope\.dimension_count is 4; only 8 is supported"):
        gguf_config(open_gguf(write_gguf(make_hf_model("SmolLM3"), "smollm3", **{"rope.dimension_count": 4})))
    pattern = WINDOW | {"attention.sliding_window_pattern": 3}
    with pytest.raises(UnsupportedModelError, match="sliding_window_pattern is 3; only 2 is supported"):
        gguf_config(open_gguf(write_gguf(make_hf_model("Gemma2"), "gemma2", **pattern)))
