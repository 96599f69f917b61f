"""Stop a run whose loss or gradient is not finite before the weights change, and name the layer.

The batches run again with the same dropout and hooks on every layer. The error names the first layer whose
output is not finite, or else the first (from the loss backwards) whose gradient is not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from unspool.training.forward_pass import autocast, seed_torch

if TYPE_CHECKING:
    from unspool.data.batch import Batch
    from unspool.interfaces import Clock, Objective
    from unspool.training.run_state import Run


class Diverged(ArithmeticError):  # noqa: N818 — named for what happened
    """The loss or the gradient was not finite; the weights are those before the update."""


def explain_divergence(
    run: Run, objective: Objective, batches: Mapping[int, tuple[Batch, Clock]], total: float, norm: float
) -> Diverged:
    """Find the first layer that is not finite; the model is unchanged."""
    numbers = list(batches)
    what = "loss" if not math.isfinite(total) else "gradient"
    value = total if not math.isfinite(total) else norm
    places = (_first_nonfinite(run, objective, number, *batches[number]) for number in numbers)
    found = next((it for it in places if it is not None), None)
    of = f"batches {numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else f"batch {numbers[0]}"
    where = (
        found or f"no layer is not finite by itself in {of}; the sum of the batches, or another process's, is"
    )
    return Diverged(
        f"update {run.progress.update + 1}: the {what} is {value}, and the weights were not touched: "
        f"{where}. Try a lower train.lr, a longer schedule.warmup or a smaller train.clip, and "
        "--resume from the last checkpoint"
    )


def _first_nonfinite(run: Run, objective: Objective, number: int, batch: Batch, clock: Clock) -> str | None:
    """Describe the first fault in a batch."""
    spoilt = next((name for name, it in run.model.named_parameters() if not _is_finite(it)), None)
    run.optimizer.zero_grad()
    with _watch_layers(run.model) as (outputs, gradients):
        seed_torch(run.seed, number)
        with run.processes.gradient_sync(run.forward_pass, False):
            with autocast(run.settings):
                total, _, _ = run.forward_pass(objective, batch, clock)
            total.backward()
    bad = [
        name for name, it in run.optimizer.named.items() if it.grad is not None and not _is_finite(it.grad)
    ]
    run.optimizer.zero_grad()
    if _is_finite(total) and not bad:
        return None
    if spoilt is not None:
        return f"before batch {number} the weights of {spoilt!r} were not finite already"
    if outputs:
        return f"in batch {number} the output of layer {outputs[0]!r} is the first that is not finite"
    if not _is_finite(total):
        return f"in batch {number} every layer is finite, but not the loss: look at the head and its targets"
    first = gradients[0] if gradients else f"of {bad[-1]!r}"
    return f"in batch {number} the gradient {first} is the first that is not finite"


@contextmanager
def _watch_layers(model: nn.Module) -> Iterator[tuple[list[str], list[str]]]:
    """Yield two lists that hooks fill: layers with non-finite outputs, and with non-finite gradients."""
    outputs: list[str] = []
    gradients: list[str] = []

    def look(place: str, gradient: Tensor) -> None:
        if not _is_finite(gradient):
            gradients.append(place)

    def forward(name: str, module: nn.Module, args: Any, output: Any) -> None:  # noqa: ARG001
        if not _is_finite(output):
            outputs.append(name)
        for it in args:
            if isinstance(it, Tensor) and it.requires_grad:
                it.register_hook(partial(look, f"at the input of layer {name!r}"))  # type: ignore[no-untyped-call]

    layers = [(name, it) for name, it in model.named_modules() if name]
    handles = [it.register_forward_hook(partial(forward, name)) for name, it in layers]
    try:
        yield outputs, gradients
    finally:
        for handle in handles:
            handle.remove()


def _is_finite(found: Any) -> bool:
    if isinstance(found, Tensor):
        return not found.is_floating_point() or bool(torch.isfinite(found).all())
    return all(_is_finite(it) for it in found) if isinstance(found, (tuple, list)) else True
