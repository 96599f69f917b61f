"""Every family against transformers with random weights: logits, and texts of both engines."""

import pytest
import torch
import transformers as tf

import unspool as us
from unspool.models.loading.causal_families import rotary_settings
from unspool.models.loading.config_reader import ConfigReader, UnsupportedModelError
from unspool.nn.positions import RotaryScaling, YarnScaling

SIZES = {
    "vocab_size": 50,
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
PART = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
GRANITE = {
    "embedding_multiplier": 3.0,
    "attention_multiplier": 0.2,
    "residual_multiplier": 0.4,
    "logits_scaling": 2.0,
}
WINDOW = {"sliding_window": 6}
CASES = {
    "llama, yarn": (tf.LlamaForCausalLM, tf.LlamaConfig, {"rope_parameters": YARN}),
    "llama, yarn told": (
        tf.LlamaForCausalLM,
        tf.LlamaConfig,
        {"rope_parameters": YARN | {"attention_factor": 1.3, "beta_fast": 8.0}},
    ),
    "llama, linear": (tf.LlamaForCausalLM, tf.LlamaConfig, {"rope_parameters": LINEAR}),
    "qwen2": (tf.Qwen2ForCausalLM, tf.Qwen2Config, {}),
    "qwen3": (tf.Qwen3ForCausalLM, tf.Qwen3Config, {"head_dim": 16}),
    "qwen3, biased": (tf.Qwen3ForCausalLM, tf.Qwen3Config, {"head_dim": 8, "attention_bias": True}),
    "olmo2": (tf.Olmo2ForCausalLM, tf.Olmo2Config, {}),
    "phi3": (tf.Phi3ForCausalLM, tf.Phi3Config, {}),
    "phi3, partial rotary": (tf.Phi3ForCausalLM, tf.Phi3Config, {"rope_parameters": PART}),
    "smollm3": (tf.SmolLM3ForCausalLM, tf.SmolLM3Config, {}),
    "mistral, windowed": (tf.MistralForCausalLM, tf.MistralConfig, WINDOW),
    "qwen2, windowed": (
        tf.Qwen2ForCausalLM,
        tf.Qwen2Config,
        WINDOW | {"use_sliding_window": True, "max_window_layers": 1},
    ),
    "qwen3, windowed": (
        tf.Qwen3ForCausalLM,
        tf.Qwen3Config,
        WINDOW | {"use_sliding_window": True, "layer_types": ["sliding_attention", "full_attention"] * 2},
    ),
    "phi3, windowed": (tf.Phi3ForCausalLM, tf.Phi3Config, WINDOW),
    "smollm3, windowed": (
        tf.SmolLM3ForCausalLM,
        tf.SmolLM3Config,
        WINDOW | {"use_sliding_window": True, "no_rope_layers": [1, 0, 1, 0]},
    ),
    "granite": (tf.GraniteForCausalLM, tf.GraniteConfig, GRANITE),
    "granite, biased": (tf.GraniteForCausalLM, tf.GraniteConfig, GRANITE | {"attention_bias": True}),
}


def saved(folder, kind, config, settings, sizes=SIZES):
    """A transformers model with large random weights, saved to a folder."""
    torch.manual_seed(0)
    model = kind(config(**sizes | settings)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return model


def agree(ours, hf):
    """Logits of a forward pass and of steps, and a greedy text, equal transformers."""
    tokens = torch.randint(3, ours.vocab_size, (2, 24))
    with torch.no_grad():
        want = hf(tokens, use_cache=False).logits.log_softmax(-1)
        torch.testing.assert_close(ours(tokens), want, atol=1e-4, rtol=1e-5)
    assert want.std() > 0.3  # the comparison is of something
    rows = tokens.tolist()
    step, state = ours.start([rows[0][:20], rows[1][:3]])
    for place in range(4):
        torch.testing.assert_close(step.logp_NV[0], want[0, 19 + place], atol=1e-4, rtol=1e-5)
        torch.testing.assert_close(step.logp_NV[1], want[1, 2 + place], atol=1e-4, rtol=1e-5)
        if place < 3:
            step, state = ours.step(state, torch.tensor([rows[0][20 + place], rows[1][3 + place]]))
    generate_options = {"max_new_tokens": 30, "do_sample": False, "pad_token_id": 0}
    expected_text = hf.generate(tokens[:1, :8], attention_mask=torch.ones(1, 8), **generate_options)[
        0, 8:
    ].tolist()
    assert list(us.generate(ours, [rows[0][:8]], us.Greedy(), max_new_tokens=30)[0].tokens) == expected_text


@pytest.mark.parametrize("engine", ["compiled", "torch"])
@pytest.mark.parametrize("name", CASES)
def test_llama_family_logits_equal_transformers(name, engine, tmp_path):
    hf, ours = saved(tmp_path, *CASES[name]), us.load(tmp_path)
    assert (ours.engine, ours.context) == ("compiled", 64)
    ours.engine = engine
    agree(ours, hf)


def test_eos_of_the_config_is_used_without_a_tokenizer(tmp_path):
    saved(tmp_path, *CASES["qwen2"])
    model = us.load(tmp_path)
    assert model.eos_ids == {2}
    assert us.score(model, [5, 6], [7], end=True).tokens == (7, 2)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [2, 7, 999]}')
    assert us.load(tmp_path).eos_ids == {2, 7}  # 999 is outside of the vocabulary
    assert us.load(tmp_path, engine="transformers").eos_ids == {2, 7}


def test_mistral_with_a_window_is_exported_as_mistral(tmp_path):
    hf = saved(tmp_path / "a", *CASES["mistral, windowed"])
    us.save(us.load(tmp_path / "a"), tmp_path / "b", format="huggingface")
    again = tf.AutoModelForCausalLM.from_pretrained(tmp_path / "b")
    assert type(again) is tf.MistralForCausalLM
    tokens = torch.randint(3, 50, (1, 24))
    with torch.no_grad():
        torch.testing.assert_close(again(tokens).logits, hf(tokens).logits, atol=1e-5, rtol=1e-5)


def test_granite_with_stored_and_int8_weights(tmp_path):
    hf = saved(tmp_path, *CASES["granite"])
    tokens = torch.randint(3, 50, (1, 12))
    with torch.no_grad():
        want = hf(tokens).logits[0, -1].log_softmax(-1)
    for weights in ("stored", "int8"):
        step, _ = us.load(tmp_path, weights=weights).start(tokens.tolist())
        torch.testing.assert_close(step.logp_NV[0], want, atol=0.1, rtol=0.05)


def test_unsupported_options_are_run_by_transformers_with_a_warning(tmp_path):
    longrope = {
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "short_factor": [1.0] * 4,
        "long_factor": [1.0] * 4,
    }
    saved(tmp_path, tf.LlamaForCausalLM, tf.LlamaConfig, {"rope_parameters": longrope | {"factor": 2.0}})
    with pytest.warns(UserWarning, match="rope_type 'longrope' is unknown.*Running it on transformers"):
        assert us.load(tmp_path).engine == "transformers"


GEMMA_SIZES = {
    "vocab_size": 50,
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "head_dim": 16,
    "sliding_window": 6,
    "query_pre_attn_scalar": 24,
}
CAPS = {"final_logit_softcapping": 5.0, "attn_logit_softcapping": 3.0}
LAYERS = {"layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]}
GEMMA_CASES = {
    "gemma2": (tf.Gemma2ForCausalLM, tf.Gemma2Config, CAPS),
    "gemma2 with a head of its own": (
        tf.Gemma2ForCausalLM,
        tf.Gemma2Config,
        CAPS | {"tie_word_embeddings": False},
    ),
    "gemma2 without caps": (tf.Gemma2ForCausalLM, tf.Gemma2Config, dict.fromkeys(CAPS)),
    "gemma3": (tf.Gemma3ForCausalLM, tf.Gemma3TextConfig, LAYERS),
}


@pytest.mark.parametrize("engine", ["compiled", "torch"])
@pytest.mark.parametrize("name", GEMMA_CASES)
def test_gemma_logits_equal_transformers_beyond_the_window(name, engine, tmp_path):
    hf, ours = saved(tmp_path, *GEMMA_CASES[name], GEMMA_SIZES), us.load(tmp_path)
    assert ours.engine == "compiled"
    ours.engine = engine
    tokens = torch.randint(3, 50, (2, 60))
    hf.set_attn_implementation("eager")  # others ignore the caps in older versions
    with torch.no_grad():
        want = hf(tokens, use_cache=False).logits.log_softmax(-1)
        torch.testing.assert_close(ours(tokens), want, atol=1e-4, rtol=1e-5)
    rows = tokens.tolist()
    step, state = ours.start([rows[0][:50], rows[1][:3]])
    for place in range(10):
        torch.testing.assert_close(step.logp_NV[0], want[0, 49 + place], atol=1e-4, rtol=1e-5)
        torch.testing.assert_close(step.logp_NV[1], want[1, 2 + place], atol=1e-4, rtol=1e-5)
        step, state = ours.step(state, torch.tensor([rows[0][50 + place], rows[1][3 + place]]))
    generate_options = {"max_new_tokens": 30, "do_sample": False, "pad_token_id": 0}
    expected_text = hf.generate(tokens[:1, :8], attention_mask=torch.ones(1, 8), **generate_options)[
        0, 8:
    ].tolist()
    assert list(us.generate(ours, [rows[0][:8]], us.Greedy(), max_new_tokens=30)[0].tokens) == expected_text


@pytest.mark.parametrize("weights", ["stored", "int8"])
@pytest.mark.parametrize("name", GEMMA_CASES)
def test_gemma_with_stored_and_int8_weights(name, weights, tmp_path):
    hf, tokens = (
        saved(tmp_path, *GEMMA_CASES[name], GEMMA_SIZES).bfloat16(),
        torch.randint(3, 50, (1, 40)),
    )
    hf.save_pretrained(tmp_path)
    with torch.no_grad():
        want = hf.float()(tokens).logits[0, -1].log_softmax(-1)
    ours = us.load(tmp_path, weights=weights)
    assert ours.engine == "compiled"
    compiled, _ = ours.start(tokens.tolist())
    ours.engine = "torch"
    # Beside quantised weights the compiled engine rounds activations to 16 bits, keys and values to float16.
    torch.testing.assert_close(compiled.logp_NV, ours.start(tokens.tolist())[0].logp_NV, atol=3e-3, rtol=1e-5)
    torch.testing.assert_close(compiled.logp_NV[0], want, atol=0.2, rtol=0.05)


def test_capped_logits_have_no_output_matrix(tmp_path):
    saved(tmp_path, *GEMMA_CASES["gemma2"], GEMMA_SIZES)
    assert us.load(tmp_path).output_matrix is None


def read(**values):
    return rotary_settings(ConfigReader("config.json", {"max_position_embeddings": 64, **values}), 16)


def test_rope_parameters_and_rope_scaling_are_equivalent():
    old = read(rope_theta=500.0, rope_scaling={"type": "linear", "factor": 4})
    new = read(rope_parameters={"rope_theta": 500.0, "rope_type": "linear", "factor": 4.0})
    assert old == new == {"rotary_base": 500.0, "rotary_factor": 4.0}
    assert read() == {"rotary_base": 10000.0}


def test_partial_rotary_factor():
    assert read(partial_rotary_factor=0.5)["rotary_width"] == 8
    assert read(rope_parameters={"partial_rotary_factor": 0.25, "rope_theta": 1.0})["rotary_width"] == 4


def test_rope_scaling_types():
    llama = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    assert read(rope_parameters=llama)["rotary_scaling"] == RotaryScaling(8.0, 1.0, 4.0, 64)
    yarn = {"rope_type": "yarn", "original_max_position_embeddings": 16}
    assert read(rope_parameters=yarn)["rotary_yarn"] == YarnScaling(4.0, 16)
    with pytest.raises(UnsupportedModelError, match=r"mscale is 1\.0; only None is supported"):
        read(rope_parameters=yarn | {"mscale": 1.0, "mscale_all_dim": 1.0})
    with pytest.raises(UnsupportedModelError, match="rope_type 'longrope' is unknown; known are default"):
        read(rope_parameters={"rope_type": "longrope"})
