"""Read only the output matrix W, (V, D), of a model file; logits are its products with the hidden state.

A tied matrix is the embedding. None if the logits are not plain products (Gemma 2's soft cap). In a folder
the tensor names decide, so this works for families that this package does not implement.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from unspool.io import read_json_object
from unspool.models.loading.gguf_file import GGUFFile
from unspool.models.loading.safetensors_files import open_safetensors
from unspool.models.loading.weight_layout import SourcePart

HEAD_NAMES = ("lm_head.weight", "embed_out.weight")
"""Suffixes of output layer names in Hugging Face folders."""
EMBEDDING_NAMES = ("embed_tokens.weight", "wte.weight", "embed_in.weight", "word_embeddings.weight")
GGUF_NAMES = ("output.weight", "token_embd.weight")
SOFTCAP_KEY = "final_logit_softcapping"


def output_matrix_of_gguf(file: GGUFFile) -> Tensor | None:
    name = next((name for name in GGUF_NAMES if name in file.tensors), None)
    if name is None or any(key.endswith(SOFTCAP_KEY) for key in file.metadata):
        return None
    matrix = torch.empty(file.shapes[name])
    file.fill(SourcePart(name, file.shapes[name]), matrix)
    return matrix


def output_matrix_of_folder(folder: Path) -> Tensor | None:
    """The output matrix of a Hugging Face folder in its stored dtype."""
    settings = read_json_object(folder / "config.json")
    text_config = settings.get("text_config")
    settings = {**settings, **text_config} if isinstance(text_config, dict) else settings
    if settings.get(SOFTCAP_KEY):
        return None
    source = open_safetensors(folder)
    heads = [name for name in source.shapes if name.endswith(HEAD_NAMES)]
    embeddings = [name for name in source.shapes if name.endswith(EMBEDDING_NAMES)]
    tied = settings.get("tie_word_embeddings", not heads)
    names = (embeddings or heads) if tied else heads
    if len(names) != 1:
        raise ValueError(
            f"{folder}: expected one output matrix, named {' or '.join(HEAD_NAMES)}, or if tied "
            f"{' or '.join(EMBEDDING_NAMES)}; found {' and '.join(sorted(names)) or 'none'}"
        )
    return source.tensor(names[0])
