"""What rules see of the model that vLLM runs: its size, its tokenizer, and its output matrix.

vLLM shows a logits processor its configuration, which names the model's files, and not the model. Matrix and
tokenizer are read from these files, by this package's own readers, when a request first needs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unspool.interfaces import Abilities, Step, TokenizerLike
from unspool.models.loading.gguf_file import open_gguf
from unspool.models.loading.model_names import gguf_path, hub_folder, is_hub_id
from unspool.models.loading.output_matrix import output_matrix_of_folder, output_matrix_of_gguf
from unspool.models.loading.tokenizer import load_gguf_tokenizer, load_huggingface_tokenizer

if TYPE_CHECKING:
    from torch import Tensor


class ServedModel(Abilities):
    """A model of vLLM's, which alone runs it."""

    def __init__(self, vllm_config: Any) -> None:
        self._config = vllm_config.model_config

    @property
    def vocab_size(self) -> int:
        """Width of the logits."""
        found: int = self._config.get_vocab_size()
        return found

    @property
    def context(self) -> int | None:
        """The most tokens that vLLM gives a text."""
        found: int | None = self._config.max_model_len
        return found

    @cached_property
    def tokenizer(self) -> TokenizerLike | None:
        """The model's tokenizer, for rules about words and characters."""
        name = str(self._config.tokenizer)
        file = gguf_path(name)
        folder = _folder(name, self._config.tokenizer_revision)
        text = (
            load_gguf_tokenizer(open_gguf(file)) if file is not None else load_huggingface_tokenizer(folder)
        )
        if text is not None and text.vocab_size > self.vocab_size:
            raise ValueError(
                f"the tokenizer of {name} knows {text.vocab_size} tokens, and vLLM's model only "
                f"{self.vocab_size}: it belongs to another model; give vLLM the model's own"
            )
        return text

    @cached_property
    def output_matrix(self) -> Tensor | None:
        """(V, D), in the precision that vLLM multiplies with; None where the logits are bent."""
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
                f"the output matrix of {name} has {len(weight)} rows, and vLLM's logits have "
                f"{self.vocab_size} columns: these are not the files that vLLM has loaded"
            )
        return weight.to(self._config.dtype).float()

    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Step, Any]:
        """Refused: vLLM runs it."""
        raise NotImplementedError("a model of vLLM's is run by vLLM")

    def step(self, state: Any, tokens_N: Tensor) -> tuple[Step, Any]:
        """Refused: vLLM runs it."""
        raise NotImplementedError("a model of vLLM's is run by vLLM")


def _folder(name: str, revision: str | None) -> Path:
    path = Path(name).expanduser()
    if path.exists() or not is_hub_id(name):
        return path if path.is_dir() else path.parent
    return hub_folder(name, revision)
