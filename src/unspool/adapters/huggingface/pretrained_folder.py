"""A Hugging Face folder, read and run by transformers: families that this package has no classes for.

No code of a model is run, and no pickle is read. transformers fills tensors that a file lacks with random
numbers; such a folder is refused.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from unspool.adapters.huggingface.answering_model import AnsweringModel
from unspool.adapters.huggingface.causal_model import CausalModel
from unspool.adapters.huggingface.wrapping import from_huggingface
from unspool.adapters.needed_packages import TRANSFORMERS
from unspool.models.load.tokenizer import text_of_huggingface


def load_folder(folder: Path, device: torch.device, dtype: torch.dtype) -> CausalModel | AnsweringModel:
    """The model with its tokenizer, where there is a tokenizer.json."""
    library = TRANSFORMERS.imported(f"{folder}: a model of this family")
    try:
        with _quiet(library):
            model, info = _read(library, folder, dtype)
    except MemoryError:
        raise
    except Exception as error:  # whatever a damaged file or a wrong setting makes transformers raise
        raise ValueError(f"{folder}: transformers cannot load this model: {_reason(error)}") from error
    missing, unused = sorted(info["missing_keys"]), sorted(info["unexpected_keys"])
    if missing:
        raise ValueError(
            f"{folder}: {_count(missing)} missing in the weights, {missing[0]} among them: fetch the whole "
            "model, or correct config.json"
        )
    if unused:
        warnings.warn(
            f"{folder}: {_count(unused)} not used by this model, {unused[0]} among them",
            UserWarning,
            stacklevel=2,
        )
    return from_huggingface(model.to(device).eval(), text_of_huggingface(folder))


def _read(library: Any, folder: Path, dtype: torch.dtype) -> tuple[Any, Any]:
    config = library.AutoConfig.from_pretrained(folder, trust_remote_code=False)
    kind = library.AutoModelForSeq2SeqLM if config.is_encoder_decoder else library.AutoModelForCausalLM
    found: tuple[Any, Any] = kind.from_pretrained(
        folder,
        config=config,
        dtype=dtype,
        use_safetensors=True,
        trust_remote_code=False,
        output_loading_info=True,
    )
    return found


@contextmanager
def _quiet(library: Any) -> Iterator[None]:
    """Without the tables of missing tensors that transformers logs: what matters is said here."""
    before = library.logging.get_verbosity()
    library.logging.set_verbosity_error()
    try:
        yield
    finally:
        library.logging.set_verbosity(before)


def _reason(error: Exception) -> str:
    """The first line of a message; the kind of error goes before a mere value (KeyError: 'weight_map')."""
    line = str(error).strip().partition("\n")[0][:200]
    if "ignore_mismatched_sizes" in line:  # its details are in a table above it
        return "shapes of tensors in its files and in config.json differ"
    if len(line.split()) < 3:
        return f"{type(error).__name__}: {line}"
    return line.rstrip(":.")


def _count(names: list[str]) -> str:
    return "1 tensor is" if len(names) == 1 else f"{len(names)} tensors are"
