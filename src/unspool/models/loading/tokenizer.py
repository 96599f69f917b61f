"""The tokenizer that came with the weights; a model without one only speaks token ids."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from unspool.tokenization.gguf_tokenizer import tokenizer_from_gguf
from unspool.tokenization.huggingface_tokenizer import tokenizer_from_folder
from unspool.tokenization.tokenizer import SETTINGS_FILE, TOKENIZER_FILE, Tokenizer

if TYPE_CHECKING:
    from unspool.interfaces import TokenizerLike
    from unspool.models.loading.gguf_file import GGUFFile

_KIND = "tokenizer.ggml.model"
_NONE = ("none", "no_vocab")
"""What llama.cpp writes for a model that has no vocabulary."""


def load_huggingface_tokenizer(folder: Path) -> Tokenizer | None:
    """From the files of a Hugging Face folder."""
    try:
        return tokenizer_from_folder(folder)
    except ValueError as error:
        raise ValueError(f"{folder}: the tokenizer cannot be read: {error}") from error


def load_gguf_tokenizer(file: GGUFFile) -> Tokenizer | None:
    """From the metadata of a GGUF file."""
    if file.metadata.get(_KIND, "none") in _NONE:
        return None
    try:
        return tokenizer_from_gguf(file.metadata)
    except ValueError as error:
        raise ValueError(f"{file.path}: the tokenizer cannot be read: {error}") from error


def load_run_tokenizer(folder: Path) -> Tokenizer | None:
    """From the files of a run folder."""
    if not any((folder / name).exists() for name in (SETTINGS_FILE, TOKENIZER_FILE)):
        return None
    return Tokenizer.load(folder)


def save_tokenizer(text: TokenizerLike | None, folder: Path) -> None:
    """Into a run folder."""
    if text is None:
        return
    if not isinstance(text, Tokenizer):
        raise TypeError(
            f"only a Tokenizer can be saved with a model, not a {type(text).__name__}: set model.text to one"
        )
    text.save(folder)
