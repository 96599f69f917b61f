"""Small random models of Hugging Face's families."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers as tf

V = 40
ENDS = {"vocab_size": V, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3}
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64}
PAIR = {
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 64,
    "forced_eos_token_id": None,
}
FAMILIES: dict[str, Callable[[], Any]] = {
    "gpt2": lambda: tf.GPT2LMHeadModel(tf.GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=64, **ENDS)),
    "llama": lambda: tf.LlamaForCausalLM(
        tf.LlamaConfig(num_key_value_heads=2, intermediate_size=24, **SIZES, **ENDS)
    ),
    "opt": lambda: tf.OPTForCausalLM(tf.OPTConfig(ffn_dim=24, word_embed_proj_dim=16, **SIZES, **ENDS)),
    "t5": lambda: tf.T5ForConditionalGeneration(
        tf.T5Config(d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2, decoder_start_token_id=0, **ENDS)
    ),
    "bart": lambda: tf.BartForConditionalGeneration(tf.BartConfig(decoder_start_token_id=2, **PAIR, **ENDS)),
    "marian": lambda: tf.MarianMTModel(tf.MarianConfig(decoder_start_token_id=0, **PAIR, **ENDS)),
    # Beyond those of the issue: a sliding window, a cap on the logits, and no attention at all.
    "gemma2": lambda: tf.Gemma2ForCausalLM(
        tf.Gemma2Config(
            num_key_value_heads=2, head_dim=4, intermediate_size=24, sliding_window=4, **SIZES, **ENDS
        )
    ),
    # Hybrids of convolution or linear attention with attention, and families with their own state.
    "lfm2": lambda: tf.Lfm2ForCausalLM(
        tf.Lfm2Config(
            layer_types=["conv", "full_attention"],
            num_key_value_heads=2,
            intermediate_size=24,
            **SIZES,
            **ENDS,
        )
    ),
    "lfm2_moe": lambda: tf.Lfm2MoeForCausalLM(
        tf.Lfm2MoeConfig(
            layer_types=["conv", "full_attention"],
            intermediate_size=24,
            num_key_value_heads=2,
            moe_intermediate_size=8,
            num_experts=4,
            num_experts_per_tok=2,
            num_dense_layers=1,
            **SIZES,
            **ENDS,
        )
    ),
    "minimax": lambda: tf.MiniMaxForCausalLM(
        tf.MiniMaxConfig(
            layer_types=["linear_attention", "full_attention"],
            intermediate_size=24,
            num_key_value_heads=2,
            num_local_experts=4,
            block_size=4,
            **SIZES,
            **ENDS,
        )
    ),
    "rwkv": lambda: tf.RwkvForCausalLM(
        tf.RwkvConfig(hidden_size=16, num_hidden_layers=2, attention_hidden_size=16, **ENDS)
    ),
    "recurrent_gemma": lambda: tf.RecurrentGemmaForCausalLM(
        tf.RecurrentGemmaConfig(
            hidden_size=16,
            num_hidden_layers=3,
            num_attention_heads=2,
            lru_width=16,
            intermediate_size=24,
            attention_window_size=8,
            **ENDS,
        )
    ),
    "openai-gpt": lambda: tf.OpenAIGPTLMHeadModel(
        tf.OpenAIGPTConfig(n_embd=16, n_layer=2, n_head=2, n_positions=64, **ENDS)
    ),
    "bart decoder": lambda: tf.BartForCausalLM(
        tf.BartConfig(decoder_start_token_id=2, **PAIR | {"encoder_layers": 2}, **ENDS)
    ),
    "nllb-moe": lambda: tf.NllbMoeForConditionalGeneration(
        tf.NllbMoeConfig(decoder_start_token_id=2, num_experts=2, **PAIR, **ENDS)
    ),
    "fsmt": lambda: tf.FSMTForConditionalGeneration(
        tf.FSMTConfig(src_vocab_size=V, tgt_vocab_size=V, decoder_start_token_id=2, num_beams=1, **PAIR)
    ),
    "mamba": lambda: tf.MambaForCausalLM(
        tf.MambaConfig(hidden_size=16, num_hidden_layers=2, state_size=4, **ENDS)
    ),
}


def made(family: str) -> Any:
    """A model with large random weights, so that logits differ clearly."""
    torch.manual_seed(0)
    model = FAMILIES[family]().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


@pytest.fixture(scope="session")
def families() -> dict[str, Any]:
    """One model of each family."""
    return {family: made(family) for family in FAMILIES}


@pytest.fixture
def llama(families: dict[str, Any]) -> Any:
    return families["llama"]


@pytest.fixture
def bart(families: dict[str, Any]) -> Any:
    return families["bart"]


def arguments(model: Any) -> dict[str, Any]:
    """Two prompts of unequal lengths, as `generate` takes them."""
    rows = [[5, 6, 2, 3], [9, 8, 7, 2]] if model.config.is_encoder_decoder else [[3, 5, 6, 7], [9, 8, 7, 6]]
    input_ids = torch.tensor(rows)
    return {"input_ids": input_ids, "attention_mask": (input_ids != 3).long(), "max_new_tokens": 8}


@pytest.fixture
def ask() -> Callable[[Any], dict[str, Any]]:
    return arguments
