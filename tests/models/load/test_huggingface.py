from __future__ import annotations

import pytest

from unspool.models.load.assembly import build
from unspool.models.load.huggingface import huggingface_weights

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}


def loaded(folder):
    config, state = huggingface_weights(folder)
    return build(config, state, None, str(folder))


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
def test_logp_equals_that_of_transformers(make_twin, family, changes):
    twin = make_twin(family, **changes)
    twin.assert_equals(loaded(twin.folder))
