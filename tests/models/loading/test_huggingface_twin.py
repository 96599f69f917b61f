import pytest
import torch

from unspool.models.loading.huggingface_export import export_causal_lm
from unspool.models.transformer_lm import TransformerConfig

LLAMA = TransformerConfig(
    vocab_size=9, width=4, layers=1, heads=2, kv_heads=1, head_width=2, inner_width=3, context=8
)


def test_fused_matrices_are_cut_by_hand():
    model = LLAMA.build()
    twin = export_causal_lm(model)
    assert (twin.family, twin.architecture) == ("llama", "LlamaForCausalLM")
    qkv, up = model.blocks[0].attention.qkv.weight, model.blocks[0].feed_forward.up.weight
    layer = "model.layers.0."
    assert torch.equal(twin.weights[layer + "self_attn.q_proj.weight"], qkv[:4])
    assert torch.equal(twin.weights[layer + "self_attn.k_proj.weight"], qkv[4:6])
    assert torch.equal(twin.weights[layer + "self_attn.v_proj.weight"], qkv[6:])
    assert torch.equal(twin.weights[layer + "mlp.gate_proj.weight"], up[:3])
    assert torch.equal(twin.weights[layer + "mlp.up_proj.weight"], up[3:])
    assert "lm_head.weight" not in twin.weights
    assert twin.config["tie_word_embeddings"]


def test_every_number_is_there_once():
    model = LLAMA.build()
    assert sum(it.numel() for it in export_causal_lm(model).weights.values()) == sum(
        it.numel() for it in model.parameters()
    )


def test_a_family_that_there_is_not_is_said():
    with pytest.raises(ValueError, match="neither of the Llama nor of the GPT-2 family"):
        export_causal_lm(TransformerConfig(**{**vars(LLAMA), "activation": "relu"}).build())
