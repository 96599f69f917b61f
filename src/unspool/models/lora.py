"""Adapters: a model whose chosen matrices stand still, each with a low-rank product beside it that learns.

    add_adapters(model, LoRA(rank=8))   →   train   →   merge_adapters(model)

Hu et al. 2022 (papers.bib: hu2022lora); the equation is in `nn.linear`. A model with adapters runs
on torch, whose parts say what they are; merged, it is the model that it was, with other numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from unspool.config import check_types
from unspool.nn.linear import Linear, LowRankLinear

if TYPE_CHECKING:
    from unspool.interfaces import TokenizerLike

THIN = ("lora_a", "lora_b")
"""How the names of what learns end."""


@dataclass(frozen=True)
class LoRA:
    """Which matrices have adapters, and how thin these are."""

    rank: int = 8
    """r: columns of the one thin matrix, and rows of the other."""
    alpha: float = 16.0
    """The product counts α/r times."""
    targets: tuple[str, ...] = ("attention.qkv", "attention.out")
    """How the names of the matrices end; feed_forward.up and feed_forward.down are others."""
    dropout: float = 0.0
    """Of what the thin matrices read."""

    def __post_init__(self) -> None:
        check_types(self)
        if self.rank < 1:
            raise ValueError(f"rank={self.rank} must be at least 1")
        if not 0.0 < self.alpha < float("inf"):
            raise ValueError(f"alpha={self.alpha} must be above 0, and finite")
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"dropout={self.dropout} must be at least 0 and below 1")
        if not self.targets:
            raise ValueError('targets is empty: name the matrices, such as "attention.qkv"')


@dataclass
class Merged:
    """What is saved of a model that may have adapters: its shape, its text and its merged weights."""

    config: Any
    tokenizer: TokenizerLike | None
    weights: dict[str, Tensor]

    def state_dict(self) -> dict[str, Tensor]:
        """The weights."""
        return self.weights


def add_adapters(model: Any, lora: LoRA) -> None:
    """Give the model adapters, which alone learn from now on. It says what it said before."""
    _check(model)
    if not isinstance(lora, LoRA):
        raise TypeError(f"lora is {lora!r:.80}, but must be a LoRA, such as LoRA(rank=8)")
    if adapters_of(model):
        raise ValueError("the model has adapters already: merge_adapters(model) first")
    chosen = _chosen(model, lora.targets)
    for name, linear in chosen.items():
        if lora.rank > min(linear.weight.shape):
            rows, columns = linear.weight.shape
            raise ValueError(
                f"rank={lora.rank} is more than {name!r} has, a matrix of {rows} × {columns}: choose "
                f"{min(rows, columns)} or less"
            )
    model.requires_grad_(False)
    for name, linear in chosen.items():
        made = LowRankLinear(linear, lora.rank, lora.alpha, lora.dropout)
        _put(model, name, made.train(linear.training))


def adapters_of(model: nn.Module) -> dict[str, LowRankLinear]:
    """Every adapted matrix by its name; none where the model has no adapters."""
    return {name: part for name, part in model.named_modules() if isinstance(part, LowRankLinear)}


def merge_adapters(model: Any) -> None:
    """Put every adapter into its matrix: the model is a plain one again, and all of it may learn."""
    _check(model)
    for name, part in adapters_of(model).items():
        _put(model, name, part.merged())
    model.requires_grad_(True)


def adapter_weights(model: nn.Module) -> dict[str, Tensor]:
    """What the adapters have learnt, by name."""
    return {name: it for name, it in model.state_dict().items() if _is_thin(name)}


@torch.no_grad()
def merged_weights(model: Any) -> dict[str, Tensor]:
    """The state of the plain model that says the same; the model itself stays as it is."""
    merged = {f"{name}.weight": part.merged_weight() for name, part in adapters_of(model).items()}
    return {name: merged.get(name, it) for name, it in model.state_dict().items() if not _is_thin(name)}


def without_adapters(model: Any) -> Any:
    """What is to be saved of the model: itself, or its merged weights."""
    if not isinstance(model, nn.Module) or not adapters_of(model):
        return model
    return Merged(model.config, model.tokenizer, merged_weights(model))  # type: ignore[arg-type]


def _check(model: Any) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"the model is {model!r:.80}, but must be one of weights, as us.load gives it")


def _is_thin(name: str) -> bool:
    return name.rpartition(".")[2] in THIN


def _chosen(model: nn.Module, targets: tuple[str, ...]) -> dict[str, Linear]:
    linears = dict(_linears(model))
    found: dict[str, Linear] = {}
    for target in targets:
        some = {name: it for name, it in linears.items() if f".{name}".endswith(f".{target}")}
        if not some:
            ends = sorted({".".join(name.split(".")[-2:]) for name in linears})
            known = f"choose from {', '.join(ends)}" if ends else "it has none that can learn"
            raise ValueError(f"no matrix of the {type(model).__name__} is called {target!r}: {known}")
        found |= some
    return found


def _linears(model: nn.Module) -> Iterator[tuple[str, Linear]]:
    return ((name, part) for name, part in model.named_modules() if type(part) is Linear)


def _put(model: nn.Module, name: str, part: nn.Module) -> None:
    owner, _, own = name.rpartition(".")
    setattr(model.get_submodule(owner), own, part)
