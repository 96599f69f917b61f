"""Stop a run whose loss or gradient is not finite before the weights change, and name the layer.

The batches run again with the same dropout and hooks on every layer. The error names the first layer whose
output is not finite, or else the first weights (from the loss backwards) whose gradient is not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
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
    what, value = ("gradient", norm) if math.isfinite(total) else ("loss", total)
    places = (_first_nonfinite(run, objective, number, *work) for number, work in batches.items())
    where = next(filter(None, places), f"all layers are finite in each of the batches {list(batches)}")
    return Diverged(
        f"update {run.progress.update + 1}: the {what} is {value}, and the weights were not touched: "
        f"{where}. Try a lower train.lr, a longer schedule.warmup or a smaller train.clip, and "
        "--resume from the last checkpoint"
    )


def _first_nonfinite(run: Run, objective: Objective, number: int, batch: Batch, clock: Clock) -> str | None:
    """Describe the first fault in a batch."""
    spoilt = next((name for name, it in run.model.named_parameters() if not _is_finite(it)), None)
    layers: list[str] = []

    def note(name: str, module: nn.Module, args: Any, output: Any) -> None:  # noqa: ARG001
        if not _is_finite(output):
            layers.append(name)

    modules = [(name, it) for name, it in run.model.named_modules() if name]
    handles = [it.register_forward_hook(partial(note, name)) for name, it in modules]
    run.optimizer.zero_grad()
    seed_torch(run.seed, number)
    with run.processes.gradient_sync(run.forward_pass, False):
        with autocast(run.settings):
            total, _, _ = run.forward_pass(objective, batch, clock)
        total.backward()
    for handle in handles:
        handle.remove()
    gradients = [name for name, it in run.optimizer.named.items() if not _is_finite(it.grad)]
    run.optimizer.zero_grad()
    if _is_finite(total) and not gradients:
        return None
    if spoilt is not None:
        return f"before batch {number} the weights of {spoilt!r} were not finite already"
    if layers:
        return f"in batch {number} the output of layer {layers[0]!r} is the first that is not finite"
    if not _is_finite(total):
        return f"in batch {number} every layer is finite, but not the loss: look at the head and its targets"
    return f"in batch {number} the gradient of {gradients[-1]!r} is the first that is not finite"


def _is_finite(found: Any) -> bool:
    if isinstance(found, Tensor):
        return not found.is_floating_point() or bool(torch.isfinite(found).all())
    return all(_is_finite(it) for it in found) if isinstance(found, (tuple, list)) else True
