from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from unspool.models.loading.huggingface_folder import load_huggingface, read_huggingface_config
from unspool.nn.positions import RotaryScaling

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}


def loaded(folder):
    return load_huggingface(folder)


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("Llama", {}),
        ("Llama", {"tie_word_embeddings": True}),
        ("Llama", {"head_dim": 12, "rope_parameters": {"rope_type": "default", "rope_theta": 777.0}}),
        ("Llama", {"rope_parameters": LLAMA3}),
        ("Llama", {"attention_bias": True, "mlp_bias": True}),
        ("Llama", {"attention_bias": True}),
        ("Llama", {"mlp_bias": True}),
        ("Mistral", {"sliding_window": None}),
        ("Qwen2", {}),
        ("GPT2", {}),
        ("GPT2", {"n_inner": 40, "activation_function": "relu", "layer_norm_epsilon": 1e-3}),
        ("GPT2", {"activation_function": "gelu", "tie_word_embeddings": False}),
    ],
)
def test_huggingface_log_probabilities_equal_transformers(make_hf_model, family, changes):
    hf = make_hf_model(family, **changes)
    hf.assert_equals(loaded(hf.folder))


def test_shards_are_read_as_one_model(make_hf_model):
    hf = make_hf_model("Llama", save={"max_shard_size": "20KB"})
    assert len(list(hf.folder.glob("model-*.safetensors"))) > 2
    hf.assert_equals(loaded(hf.folder))


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_other_dtypes_become_float32(make_hf_model, kind):
    hf = make_hf_model("Llama")
    rounded = {name: tensor.to(kind) for name, tensor in hf.model.state_dict().items()}
    save_file(rounded, hf.folder / "model.safetensors")
    hf.model.load_state_dict(rounded)
    state = load_huggingface(hf.folder).state_dict()
    assert {tensor.dtype for tensor in state.values()} == {torch.float32}
    hf.assert_equals(loaded(hf.folder))


def rewrite(folder, change):
    """Write the weights again under other names, or with other numbers."""
    state = load_file(folder / "model.safetensors")
    save_file(change(state), folder / "model.safetensors")


def test_names_without_prefix_and_stored_masks_are_read(make_hf_model):
    """As in the first GPT-2 files."""
    hf = make_hf_model("GPT2")
    masks = {f"h.{i}.attn.bias": torch.ones(1, 1, 64, 64).tril() for i in range(2)}
    rewrite(hf.folder, lambda s: masks | {name.removeprefix("transformer."): s[name] for name in s})
    hf.assert_equals(loaded(hf.folder))


def test_a_bare_llama_is_read(make_hf_model):
    hf = make_hf_model("Llama", tie_word_embeddings=True)
    frequencies = {"layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}
    rewrite(hf.folder, lambda s: frequencies | {name.removeprefix("model."): s[name] for name in s})
    hf.assert_equals(loaded(hf.folder))


def test_tied_weights_may_be_stored_twice_or_under_the_head_only(make_hf_model):
    hf = make_hf_model("Llama", tie_word_embeddings=True)
    rewrite(hf.folder, lambda s: s | {"lm_head.weight": s["model.embed_tokens.weight"].clone()})
    assert load_huggingface(hf.folder).config.tied
    hf.assert_equals(loaded(hf.folder))
    rewrite(hf.folder, lambda s: {name: s[name] for name in s if name != "model.embed_tokens.weight"})
    assert load_huggingface(hf.folder).config.tied
    hf.assert_equals(loaded(hf.folder))


def test_tied_configs_with_different_weights_are_untied(make_hf_model):
    hf = make_hf_model("Llama", tie_word_embeddings=False)
    reconfigure(hf.folder, tie_word_embeddings=True)
    assert not load_huggingface(hf.folder).config.tied
    hf.assert_equals(loaded(hf.folder))


def reconfigure(folder, **changes):
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in config.items() if value != "absent"}))


CONFIG = {
    "model_type": "llama",
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}


@pytest.fixture
def configured(tmp_path):
    """The configuration of a Llama with changes."""

    def read(**changes):
        (tmp_path / "config.json").write_text(json.dumps(CONFIG))
        reconfigure(tmp_path, **changes)
        return read_huggingface_config(tmp_path)[0]

    return read


def test_config_defaults_equal_transformers(configured):
    config = configured()
    assert (config.kv_heads, config.head_width, config.context) == (4, 8, 2048)
    assert (config.norm_eps, config.rotary_base, config.tied, config.bias) == (1e-6, 10000.0, False, False)
    gpt2 = configured(model_type="gpt2", n_embd=32, n_layer=2, n_head=4)
    assert (gpt2.inner_width, gpt2.context, gpt2.norm_eps, gpt2.tied) == (128, 1024, 1e-5, True)
    assert (gpt2.activation, gpt2.norm, gpt2.positions, gpt2.bias) == ("gelu_tanh", "layer", "learned", True)


def test_rotary_settings_are_found_in_three_places(configured):
    assert configured(rope_theta=5e5).rotary_base == 5e5
    assert configured(rope_parameters={"rope_type": "default", "rope_theta": 7e5}).rotary_base == 7e5
    old = {key: LLAMA3[key] for key in LLAMA3 if key != "rope_theta"}
    config = configured(rope_theta=9e5, rope_scaling=old)
    assert config.rotary_base == 9e5
    assert config.rotary_scaling == RotaryScaling(8.0, 1.0, 4.0, 16)
    assert configured(rope_scaling={"type": "default"}).rotary_scaling is None


def test_a_sliding_window_leaves_the_context_alone(configured):
    def shape(**changes):
        config = configured(max_position_embeddings=32768, **changes)
        return config.context, config.window, len(config.windowed_layers)

    assert shape(model_type="mistral") == (32768, 4096, 2)
    assert shape(model_type="mistral", sliding_window=1024) == (32768, 1024, 2)
    assert shape(model_type="mistral", sliding_window=None) == (32768, None, 0)
    assert shape(model_type="mistral", sliding_window=32768) == (32768, None, 0)
    qwen = {"model_type": "qwen2", "sliding_window": 1024}
    assert shape(**qwen) == (32768, None, 0)
    assert shape(**qwen, use_sliding_window=True) == (32768, None, 0)  # from layer 28 on
    assert shape(**qwen, use_sliding_window=True, max_window_layers=1) == (32768, 1024, 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "mamba"}, "model_type 'mamba' is unknown; known are bart, gemma2, gemma3_text, gpt2"),
        ({"model_type": "absent"}, "model_type is missing"),
        ({"hidden_size": "absent"}, "hidden_size is missing; expected a whole number"),
        ({"hidden_size": 33}, "the width 33 is not a multiple of 4 heads"),
        ({"num_key_value_heads": 3}, "config.json: kv_heads=3 must divide heads=4"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; only 'silu'"),
        (
            {"rope_scaling": {"type": "dynamic", "factor": 2}},
            "rope_type 'dynamic' is unknown; known are default, linear, llama3, yarn",
        ),
        ({"rope_scaling": {"rope_type": "llama3"}}, "factor is missing"),
        ({"rope_parameters": [1]}, r"rope_parameters is \[1\]; expected a table"),
        ({"quantization_config": {"bits": 4}}, "the weights are quantised; fetch the model in float32"),
        (
            {"model_type": "gpt2", "activation_function": "mish"},
            "activation_function 'mish' is unknown; known are gelu, gelu_new, gelu_pytorch_tanh, relu",
        ),
        (
            {"model_type": "gpt2", "scale_attn_by_inverse_layer_idx": True},
            "scale_attn_by_inverse_layer_idx is True",
        ),
    ],
)
def test_unsupported_or_wrong_configs_are_rejected(configured, tmp_path, changes, message):
    with pytest.raises(ValueError, match=message) as caught:
        configured(**changes)
    assert str(tmp_path / "config.json") in str(caught.value)


def test_invalid_config_json_is_rejected(tmp_path):
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match="not valid JSON"):
        read_huggingface_config(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda s: {n: s[n] for n in s if n != "model.norm.weight"},
            r"'model\.norm\.weight' of shape \[32\] is missing",
        ),
        (
            lambda s: s | {"model.layers.0.extra": torch.ones(2)},
            r"unexpected tensors .*model\.layers\.0\.extra",
        ),
        (
            lambda s: s | {"model.norm.weight": torch.ones(31)},
            r"'model\.norm\.weight' has shape \[31\].*\[32\]",
        ),
        (
            lambda s: s | {"model.norm.weight": torch.full((32,), torch.nan)},
            r"'model\.norm\.weight' holds NaN",
        ),
        (
            lambda s: s | {"model.norm.weight": torch.full((32,), -torch.inf)},
            r"'model\.norm\.weight' holds NaN",
        ),
        (
            lambda s: s | {"model.norm.weight": torch.ones(32, dtype=torch.int8)},
            r"'model\.norm\.weight' is stored as I8",
        ),
    ],
)
def test_wrong_weights_are_rejected(make_hf_model, change, message):
    hf = make_hf_model("Llama")
    rewrite(hf.folder, change)
    with pytest.raises(ValueError, match=message):
        load_huggingface(hf.folder)


def test_more_layers_than_tensors_are_rejected(make_hf_model):
    hf = make_hf_model("Llama")
    reconfigure(hf.folder, num_hidden_layers=2**31 - 1)
    with pytest.raises(ValueError, match="layers=2147483647, but the file holds 21 tensors"):
        load_huggingface(hf.folder)
