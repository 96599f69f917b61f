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
from unspool.models.loading.gguf_file import GGUFFile, is_gguf, open_gguf
from unspool.models.loading.model_names import (
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
        file = _open_files(name, self._config.tokenizer_revision)
        tokenizer = (
            load_gguf_tokenizer(file) if isinstance(file, GGUFFile) else load_huggingface_tokenizer(file)
        )
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
        file = _open_files(name, self._config.revision)
        weight = output_matrix_of_gguf(file) if isinstance(file, GGUFFile) else output_matrix_of_folder(file)
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


def _open_files(name: str, revision: str | None) -> GGUFFile | Path:
    """The open GGUF file of a name, or its folder."""
    path = Path(name).expanduser()
    if not path.exists() and is_hub_id(name):
        return hub_folder(name, revision)
    if path.is_file() and is_gguf(path):
        return open_gguf(path)
    return path if path.is_dir() else path.parent
