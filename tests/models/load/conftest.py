"""Tiny models made on the spot, in the formats that other tools write."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

_LLAMA = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
}
_GPT2 = {"vocab_size": 61, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
_SHAPES = {"Llama": _LLAMA, "Mistral": _LLAMA, "Qwen2": _LLAMA, "GPT2": _GPT2}
_CLASSES = {"GPT2": "GPT2LMHeadModel"}


@dataclass(frozen=True)
class Twin:
    """A model of transformers, and the folder that it was saved to."""

    model: Any
    folder: Path

    @torch.no_grad()
    def assert_equals(self, ours: Callable[[Tensor], Tensor], atol: float = 1e-4) -> None:
        """Our model says the same about every next token."""
        tokens_NT = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1, 8, 2, 8, 1, 8]])
        theirs = torch.log_softmax(self.model(tokens_NT).logits.float(), dim=-1)
        torch.testing.assert_close(ours(tokens_NT), theirs, atol=atol, rtol=0)


@pytest.fixture(scope="session")
def transformers() -> Any:
    # Its import warns about things that are not ours.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers
    return transformers


@pytest.fixture
def make_twin(transformers: Any, tmp_path: Path) -> Callable[..., Twin]:
    """A model of transformers with random weights, norms and biases included, saved to a folder."""

    def make(family: str, *, save: dict[str, Any] | None = None, **changes: Any) -> Twin:
        config = getattr(transformers, f"{family}Config")(**{**_SHAPES[family], **changes})
        torch.manual_seed(7)
        model = getattr(transformers, _CLASSES.get(family, f"{family}ForCausalLM"))(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(std=0.2).add_(1.0 if parameter.dim() == 1 else 0.0)
        folder = tmp_path / "twin"
        model.eval().save_pretrained(folder, **(save or {}))
        return Twin(model, folder)

    return make
