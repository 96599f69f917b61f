"""Assembled models. Those that say one token after another are StepModels: every decoder runs on them."""

from unspool.models.transformer_lm import TransformerConfig, TransformerLM

MODELS: dict[str, type] = {
    "transformer_lm": TransformerConfig,
}

__all__ = ["MODELS", "TransformerConfig", "TransformerLM"]
