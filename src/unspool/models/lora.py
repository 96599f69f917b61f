"""LoRA adapters: add them to the linear layers of a model, train them, and merge them.

    add_adapters(model, LoRA(rank=8))   →   train   →   merge_adapters(model)

Hu et al. 2022 (papers.bib: hu2022lora); the equation is in `nn.linear.LowRankLinear`. A model with adapters
runs on torch; after merging it is a plain model with other weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from unspool.arguments import integer, number
from unspool.models.model_config import ModelSettings
from unspool.nn.linear import Linear, LowRankLinear

ADAPTER_SUFFIXES = (".lora_a", ".lora_b")
"""Suffixes of the names of adapter weights."""


@dataclass(frozen=True)
class LoRA(ModelSettings):
    """Settings of LoRA adapters."""

    rank: int = integer(8, at_least=1)
    """The rank r of the adapters."""
    alpha: float = number(16.0, above=0)
    """The adapters are scaled by α/r."""
    targets: tuple[str, ...] = ("attention.qkv", "attention.out")
    """Name suffixes of the adapted layers; others are feed_forward.up and feed_forward.down."""
    dropout: float = number(0.0, at_least=0, below=1)
    """Dropout of the input of adapters."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.targets:
            raise ValueError('targets is empty: name the layers to adapt, such as "attention.qkv"')


def add_adapters(model: Any, lora: LoRA) -> None:
    """Add adapters and freeze all other weights; the outputs do not change yet."""
    check_module(model)
    if not isinstance(lora, LoRA):
        raise TypeError(f"lora is {lora!r:.80}, but must be a LoRA, such as LoRA(rank=8)")
    if find_adapters(model):
        raise ValueError("the model already has adapters: call merge_adapters(model) first")
    chosen = _find_targets(model, lora.targets)
    for name, linear in chosen.items():
        if lora.rank > min(linear.weight.shape):
            rows, columns = linear.weight.shape
            raise ValueError(
                f"rank={lora.rank} is more than {name!r} has, a matrix of {rows} × {columns}: choose "
                f"{min(rows, columns)} or less"
            )
    model.requires_grad_(False)
    for name, linear in chosen.items():
        adapter = LowRankLinear(linear, lora.rank, lora.alpha, lora.dropout)
        model.set_submodule(name, adapter.train(linear.training))


def find_adapters(model: nn.Module) -> dict[str, LowRankLinear]:
    """All adapted layers by name."""
    return {name: part for name, part in model.named_modules() if isinstance(part, LowRankLinear)}


def merge_adapters(model: Any) -> None:
    """Merge every adapter into its layer; all weights become trainable again."""
    check_module(model)
    for name, part in find_adapters(model).items():
        model.set_submodule(name, part.merged())
    model.requires_grad_(True)


def adapter_weights(model: nn.Module) -> dict[str, Tensor]:
    """The weights of the adapters by name."""
    return {name: weight for name, weight in model.state_dict().items() if name.endswith(ADAPTER_SUFFIXES)}


@torch.no_grad()
def merged_weights(model: Any) -> dict[str, Tensor]:
    """The state dict of the equivalent plain model; the model itself is not changed."""
    merged = {f"{name}.weight": part.merged_weight() for name, part in find_adapters(model).items()}
    adapters = adapter_weights(model)
    return {
        name: merged.get(name, weight) for name, weight in model.state_dict().items() if name not in adapters
    }


def check_module(model: Any) -> None:
    """Raise TypeError for anything but a model with weights."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"the model is {model!r:.80}, but must be a torch module, such as us.load returns")


def _find_targets(model: nn.Module, targets: tuple[str, ...]) -> dict[str, Linear]:
    linears = {name: part for name, part in model.named_modules() if type(part) is Linear}
    chosen: dict[str, Linear] = {}
    for target in targets:
        matches = {name: linear for name, linear in linears.items() if f".{name}".endswith(f".{target}")}
        if not matches:
            ends = sorted({".".join(name.split(".")[-2:]) for name in linears})
            known = f"choose from {', '.join(ends)}" if ends else "it has no linear layers"
            raise ValueError(f"no matrix of the {type(model).__name__} is called {target!r}: {known}")
        chosen |= matches
    return chosen
