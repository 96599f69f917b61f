"""Models of the Hugging Face Hub, by id: weights, configuration and tokenizer are fetched, never code."""

from __future__ import annotations

import re
from pathlib import Path

FETCHED = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "model-*.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
)
"""The files that are asked for; nothing in them can run."""

_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def is_hub_id(name: str) -> bool:
    """Whether the name has the form owner/model."""
    return _ID.fullmatch(name) is not None and ".." not in name


def hub_folder(name: str, revision: str | None = None) -> Path:
    """The model's folder in Hugging Face's own cache, filled from the Hub if need be.

    `HF_HOME`, `HF_TOKEN` and `HF_HUB_OFFLINE` mean what they mean to every program that uses the Hub.
    """
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise ImportError(
            f"{name!r} looks like a model of the Hugging Face Hub, which needs: pip install 'unspool[hub]'"
        ) from error
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(FETCHED)))
    except OSError as error:  # every error of the Hub's is one: not found, gated, no network, offline mode
        reason = str(error).strip().partition("\n")[0]
        raise FileNotFoundError(
            f"{name!r} is not on this machine and cannot be fetched from the Hugging Face Hub: {reason} "
            "Check the id and the network, for gated models `hf auth login`, or give a local folder."
        ) from error
