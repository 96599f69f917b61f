"""The model that vLLM serves, as transforms and picks see it: vocabulary, tokenizer and output matrix.

vLLM passes a logits processor its configuration, which names the model's files, but not the model. Output
matrix and tokenizer are read from these files when a request first needs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from unspool.interfaces import Abilities, Step, TokenizerLike
from unspool.models.loading.gguf_file import open_gguf
from unspool.models.loading.model_names import (
    gguf_path,
    hub_folder,
    is_hub_id,
    load_gguf_tokenizer,
    load_huggingface_tokenizer,
)
from unspool.models.loading.output_matrix import output_matrix_of_folder, output_matrix_of_gguf


class ServedModel(Abilities):
    """A model that vLLM runs."""

    def __init__(self, vllm_config: Any) -> None:
        self._config = vllm_config.model_config

    @property
    def vocab_size(self) -> int:
        return self._config.get_vocab_size()

    @property
    def context(self) -> int | None:
        return self._config.max_model_len

    @cached_property
    def tokenizer(self) -> TokenizerLike | None:
        """The model's tokenizer, for transforms that use text."""
        name = str(self._config.tokenizer)
        file = gguf_path(name)
        if file is not None:
            tokenizer = load_gguf_tokenizer(open_gguf(file))
        else:
            tokenizer = load_huggingface_tokenizer(_folder(name, self._config.tokenizer_revision))
        if tokenizer is not None and tokenizer.vocab_size > self.vocab_size:
            raise ValueError(
                f"the tokenizer of {name} has {tokenizer.vocab_size} tokens, vLLM's model only "
                f"{self.vocab_size}: give vLLM the model's own tokenizer"
            )
        return tokenizer

    @cached_property
    def output_matrix(self) -> Tensor | None:
        """(V, D), rounded to vLLM's dtype; None if the logits are capped."""
        name = str(self._config.model)
        file = gguf_path(name)
        if file is not None:
            weight = output_matrix_of_gguf(open_gguf(file))
        else:
            weight = output_matrix_of_folder(_folder(name, self._config.revision))
        if weight is None:
            return None
        if len(weight) != self.vocab_size:
            raise ValueError(
                f"the output matrix of {name} has {len(weight)} rows, but vLLM's logits have "
                f"{self.vocab_size} columns: vLLM has loaded other files"
            )
        return weight.to(self._config.dtype).float()

    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Step, Any]:
        raise NotImplementedError("vLLM runs the model")

    def step(self, state: Any, tokens_N: Tensor) -> tuple[Step, Any]:
        raise NotImplementedError("vLLM runs the model")


def _folder(name: str, revision: str | None) -> Path:
    path = Path(name).expanduser()
    if path.exists() or not is_hub_id(name):
        return path if path.is_dir() else path.parent
    return hub_folder(name, revision)
