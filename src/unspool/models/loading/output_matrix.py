"""A model's output matrix alone, out of its files: W, (V, D), where the logits are its products.

A tied one is the embedding. Logits that are bent afterwards (Gemma 2's cap) are no products: None. In a
folder the names of tensors tell, for families that this package has no classes for, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from unspool.models.loading.safetensors_files import open_safetensors
from unspool.tokenization.tokenizer import read_json_object

if TYPE_CHECKING:
    from torch import Tensor

    from unspool.models.loading.gguf_file import GGUFFile

HEAD_NAMES = ("lm_head.weight", "embed_out.weight")
"""How the names of output layers end in a folder."""
EMBEDDING_NAMES = ("embed_tokens.weight", "wte.weight", "embed_in.weight", "word_embeddings.weight")
GGUF_NAMES = ("output.weight", "token_embd.weight")
SOFTCAP_KEY = "final_logit_softcapping"


def output_matrix_of_gguf(file: GGUFFile) -> Tensor | None:
    """Unpacked from a GGUF file."""
    bent = [key for key in file.metadata if key.endswith(SOFTCAP_KEY)]
    found = next((name for name in GGUF_NAMES if name in file.tensors), None)
    if bent or found is None:
        return None
    whole = torch.empty(file.tensors[found].shape)
    file.fill(found, whole)
    return whole


def output_matrix_of_folder(folder: Path) -> Tensor | None:
    """From the safetensors of a Hugging Face folder, in the type that they have there."""
    settings = read_json_object(folder / "config.json")
    inner = settings.get("text_config")
    settings = {**settings, **inner} if isinstance(inner, dict) else settings
    if settings.get(SOFTCAP_KEY):
        return None
    source = open_safetensors(folder)
    heads = [name for name in source.shapes if name.endswith(HEAD_NAMES)]
    embeddings = [name for name in source.shapes if name.endswith(EMBEDDING_NAMES)]
    tied = settings.get("tie_word_embeddings", not heads)
    found = (embeddings or heads) if tied else heads
    if len(found) != 1:
        there = " and ".join(sorted(found)) or "none"
        raise ValueError(
            f"{folder}: expected one output matrix, named {' or '.join(HEAD_NAMES)}, or if tied "
            f"{' or '.join(EMBEDDING_NAMES)}; found {there}"
        )
    return source.tensor(found[0])
