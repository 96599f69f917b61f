"""Save and load LoRA adapters as a small safetensors file.

    us.models.save_adapters(model, "polite.safetensors")
    us.models.load_adapters(us.load("smollm2"), "polite.safetensors")

The file stores a hash of the base model's weights and is rejected by any other model. Run folders of
fine-tuned models contain adapters.safetensors.
"""

from __future__ import annotations

import hashlib
import json
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from unspool.config import build, to_dict
from unspool.engine.weight_formats import all_finite
from unspool.io import new_file
from unspool.models.loading.assembly import errors_with_label
from unspool.models.loading.safetensors_files import check_safetensors, write_safetensors
from unspool.models.lora import (
    LoRA,
    adapter_weights,
    add_adapters,
    check_module,
    find_adapters,
    merge_adapters,
)

ADAPTERS = "adapters.safetensors"
FORMAT = "unspool adapters 1"


def _as_path(path: Any) -> Path:
    if not isinstance(path, str | PathLike) or not fspath(path):
        raise TypeError(f"path must be the name of an adapter file, not {path!r:.80}")
    return Path(fspath(path)).expanduser()


def save_adapters(model: Any, path: str | PathLike[str]) -> None:
    """Write the model's adapters to a file atomically."""
    check_module(model)
    if not find_adapters(model):
        raise ValueError("the model has no adapters: add_adapters(model, LoRA()) gives it some")
    with new_file(_as_path(path)) as temporary:
        write_adapters(temporary, lora_settings(model), fingerprint(model), adapter_weights(model))


def load_adapters(model: Any, path: str | PathLike[str]) -> None:
    """Add the adapters of a file or run folder to the model that they were trained on."""
    check_module(model)
    path = _as_path(path)
    path = path / ADAPTERS if path.is_dir() else path
    metadata, weights = _read(path)
    if metadata.get("base") != fingerprint(model):
        raise ValueError(
            f"{path}: these adapters were trained on another model than this {type(model).__name__}: load "
            "their base model"
        )
    for name, weight in weights.items():
        if weight.numel() and not (weight.is_floating_point() and all_finite(weight)):
            raise ValueError(f"{path}: {name!r} holds NaN or infinity: the file is damaged")
    try:
        settings = json.loads(metadata.get("lora", ""))
    except ValueError as error:
        raise ValueError(
            f"{path}: the LoRA settings cannot be read ({error}): the file is damaged"
        ) from error
    with errors_with_label(str(path)):
        add_adapters(model, build(LoRA, settings, "lora"))
    expected, shapes = (
        {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        for tensors in (adapter_weights(model), weights)
    )
    if expected != shapes:
        merge_adapters(model)  # removes the adapters just added, which are still zero
        wrong = min(name for name in {*expected, *shapes} if expected.get(name) != shapes.get(name))
        raise ValueError(
            f"{path}: {wrong!r} has shape {shapes.get(wrong)}, expected {expected.get(wrong)}: the file is "
            "damaged"
        )
    model.load_state_dict(weights, strict=False)


def lora_settings(model: nn.Module) -> LoRA:
    adapters = find_adapters(model)
    first = next(iter(adapters.values()))
    rank = first.lora_a.shape[0]
    return LoRA(rank, first.scale * rank, tuple(adapters), first.dropout.p)


def write_adapters(path: Path, lora: LoRA, base: str, weights: dict[str, Tensor]) -> None:
    metadata = {"format": FORMAT, "lora": json.dumps(to_dict(lora)), "base": base}
    tensors = {name: weight.detach().cpu().contiguous() for name, weight in weights.items()}
    write_safetensors(tensors, path, metadata)


def fingerprint(model: nn.Module) -> str:
    """Hash of all weights except adapters."""
    digest = hashlib.blake2b(digest_size=16)
    adapters = adapter_weights(model)
    for name, tensor in sorted(model.state_dict().items()):
        if name not in adapters:
            digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
            digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _read(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: adapters not found: give a file of save_adapters or a run folder")
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise ValueError(
                    f"{path}: not an adapter file of save_adapters (format {metadata.get('format')!r}, "
                    f"expected {FORMAT!r})"
                )
            check_safetensors(path, metadata)
            return metadata, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path}: not a readable safetensors file: {error}") from error
