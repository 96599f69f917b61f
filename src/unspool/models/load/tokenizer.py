"""The tokenizer that came with the weights; a model without one only speaks token ids."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from unspool.text.codec import CODEC_FILE, TOKENIZER_FILE, Codec
from unspool.text.gguf_tokenizer import codec_from_gguf
from unspool.text.huggingface_tokenizer import codec_from_folder

if TYPE_CHECKING:
    from unspool.models.load.gguf_file import GGUFFile
    from unspool.protocols import Text

_KIND = "tokenizer.ggml.model"
_NONE = ("none", "no_vocab")
"""What llama.cpp writes for a model that has no vocabulary."""


def text_of_huggingface(folder: Path) -> Codec | None:
    """From the files of a Hugging Face folder."""
    try:
        return codec_from_folder(folder)
    except ValueError as error:
        raise ValueError(f"{folder}: the tokenizer cannot be read: {error}") from error


def text_of_gguf(file: GGUFFile) -> Codec | None:
    """From the metadata of a GGUF file."""
    if file.metadata.get(_KIND, "none") in _NONE:
        return None
    try:
        return codec_from_gguf(file.metadata)
    except ValueError as error:
        raise ValueError(f"{file.path}: the tokenizer cannot be read: {error}") from error


def text_of_run(folder: Path) -> Codec | None:
    """From the files of a run folder."""
    if not any((folder / name).exists() for name in (CODEC_FILE, TOKENIZER_FILE)):
        return None
    return Codec.load(folder)


def save_text(text: Text | None, folder: Path) -> None:
    """Into a run folder."""
    if text is None:
        return
    if not isinstance(text, Codec):
        raise TypeError(
            f"only a Codec can be saved with a model, not a {type(text).__name__}: set model.text to one"
        )
    text.save(folder)
