"""Adapters in a file of their own: a few megabytes that turn one model into another.

    us.models.save_adapters(model, "polite.safetensors")
    us.models.load_adapters(us.load("smollm2"), "polite.safetensors")

The file knows the model that they were learnt for by a hash of its weights: on any other they mean nothing.
A run folder has one, too, as adapters.safetensors.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from unspool.config import build, to_dict
from unspool.engine.weight_formats import all_finite
from unspool.io import new_file
from unspool.models.loading.safetensors_files import check_safetensors, write_safetensors
from unspool.models.lora import LoRA, adapter_weights, adapters_of, add_adapters, merge_adapters

ADAPTERS = "adapters.safetensors"
FORMAT = "unspool adapters 1"


def save_adapters(model: Any, path: str | PathLike[str]) -> None:
    """Write the model's adapters to a file, which appears whole or not at all."""
    _check(model, path)
    if not adapters_of(model):
        raise ValueError("the model has no adapters: add_adapters(model, LoRA()) gives it some")
    with new_file(Path(fspath(path)).expanduser()) as fresh:
        write_adapters(fresh, lora_settings(model), fingerprint(model), adapter_weights(model))


def load_adapters(model: Any, path: str | PathLike[str]) -> None:
    """Give the model the adapters of a file or of a run folder; they were learnt for this very model."""
    _check(model, path)
    path = Path(fspath(path)).expanduser()
    path = path / ADAPTERS if path.is_dir() else path
    said, weights = _read(path)
    if said.get("base") != fingerprint(model):
        raise ValueError(
            f"{path}: these adapters were learnt for another model than this {type(model).__name__}, whose "
            "weights are not those that they stand beside: load the model that they were learnt for"
        )
    for name, it in weights.items():
        if it.numel() and not (it.is_floating_point() and all_finite(it)):
            raise ValueError(f"{path}: {name!r} has numbers that are not finite: the file is damaged")
    try:
        settings = json.loads(said.get("lora", ""))
    except ValueError as error:
        raise ValueError(f"{path}: what adapters it has cannot be read ({error}): it is damaged") from error
    try:
        add_adapters(model, build(LoRA, settings, "lora"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    expected, found = _shapes(adapter_weights(model)), _shapes(weights)
    if expected != found:
        merge_adapters(model)  # those that were just added: they are nothing yet
        wrong = min(name for name in {*expected, *found} if expected.get(name) != found.get(name))
        raise ValueError(
            f"{path}: {wrong!r} has the shape {found.get(wrong)}, and its place in the model "
            f"{expected.get(wrong)}: the file is damaged"
        )
    model.load_state_dict(weights, strict=False)


def lora_settings(model: nn.Module) -> LoRA:
    """The settings that give a model the adapters that it has."""
    found = adapters_of(model)
    first = next(iter(found.values()))
    rank = first.lora_a.shape[0]
    return LoRA(rank, first.scale * rank, tuple(found), first.dropout.p)


def write_adapters(path: Path, lora: LoRA, base: str, weights: dict[str, Tensor]) -> None:
    """Into a file that nobody reads yet."""
    said = {"format": FORMAT, "lora": json.dumps(to_dict(lora)), "base": base}
    write_safetensors({name: it.detach().cpu().contiguous() for name, it in weights.items()}, path, said)


def fingerprint(model: nn.Module) -> str:
    """Of all weights but those of adapters: equal for equal models, wherever they came from."""
    hashed = hashlib.blake2b(digest_size=16)
    thin = adapter_weights(model)
    for name, tensor in sorted(model.state_dict().items()):
        if name not in thin:
            hashed.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
            hashed.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return hashed.hexdigest()


def _check(model: Any, path: Any) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"the model is {model!r:.80}, but must be one of weights, as us.load gives it")
    if not isinstance(path, str | PathLike) or not fspath(path):
        raise TypeError(f"adapters are in a file by its name or path, not in {path!r:.80}")


def _shapes(weights: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(it.shape) for name, it in weights.items()}


def _read(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: there are no adapters: give a file of save_adapters or a run folder"
        )
    try:
        with safe_open(path, "pt") as file:
            said = file.metadata() or {}
            if said.get("format") != FORMAT:
                raise ValueError(
                    f"{path}: no adapters that were saved here (format {said.get('format')!r}, expected "
                    f"{FORMAT!r})"
                )
            check_safetensors(path, said)
            return said, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path}: not a safetensors file that can be read: {error}") from error
