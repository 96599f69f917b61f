"""A loss or gradient that is not finite stops the run before it can touch the weights, and is explained.

The batches are run once more, with the same dropout, and every layer is watched: the first one whose output
is not finite is named; if all outputs are, the first one (from the loss backwards) whose gradient is not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from unspool.train.precision import arithmetic
from unspool.train.seeds import reseed

if TYPE_CHECKING:
    from unspool.train.state import Run


class Diverged(ArithmeticError):  # noqa: N818 — named for what happened
    """The loss or the gradient was not finite; the weights are those before the update."""


def explain(run: Run, numbers: Sequence[int], total: float, norm: float) -> Diverged:
    """Find out where it began; the model is left as it was."""
    what = "loss" if not math.isfinite(total) else "gradient"
    value = total if not math.isfinite(total) else norm
    found = next((it for number in numbers if (it := _first(run, number)) is not None), None)
    of = f"batches {numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else f"batch {numbers[0]}"
    where = (
        found or f"no layer is not finite by itself in {of}; the sum of the batches, or another process's, is"
    )
    return Diverged(
        f"update {run.progress.update + 1}: the {what} is {value}, and the weights were not touched: "
        f"{where}. Try a lower train.lr, a longer schedule.warmup or a smaller train.clip, and "
        "--resume from the last checkpoint"
    )


def _first(run: Run, number: int) -> str | None:
    """Where batch `number` first goes wrong, in words."""
    outputs: list[str] = []
    gradients: list[str] = []

    def forward(name: str) -> Any:
        def look(module: nn.Module, args: Any, output: Any) -> None:  # noqa: ARG001
            if not outputs and not _finite(output):
                outputs.append(name)

        return look

    def backward(name: str) -> Any:
        def look(module: nn.Module, inward: Any, outward: Any) -> None:  # noqa: ARG001
            if not gradients and not _finite(inward) and _finite(outward):
                gradients.append(name)

        return look

    handles = [
        handle
        for name, module in run.model.named_modules()
        if name
        for handle in (
            module.register_forward_hook(forward(name)),
            module.register_full_backward_hook(backward(name)),
        )
    ]
    bad = next((name for name, it in run.model.named_parameters() if not _finite(it)), None)
    try:
        run.optimizer.zero_grad()
        reseed(run.seed, number)
        with run.team.last(run.walk, False):
            with arithmetic(run.settings):
                total, _, _ = run.walk(
                    run.objective, run.feed.batch(number).to(run.settings.device), run.clock
                )
            total.backward()
        if bad is not None:
            return f"before batch {number} the weights of {bad!r} were not finite already"
        if outputs:
            return f"in batch {number} the output of layer {outputs[0]!r} is the first that is not finite"
        if not _finite(total):
            return (
                f"in batch {number} every layer is finite, but not the loss: look at the head and its targets"
            )
        if gradients:
            return f"in batch {number} the gradient at layer {gradients[0]!r} is the first that is not finite"
        for name, it in reversed(list(run.model.named_parameters())):
            if it.grad is not None and not _finite(it.grad):
                return f"in batch {number} the gradient of {name!r} is the first that is not finite"
        return None
    finally:
        for handle in handles:
            handle.remove()
        run.optimizer.zero_grad()


def _finite(found: Any) -> bool:
    if isinstance(found, Tensor):
        return not found.is_floating_point() or bool(torch.isfinite(found).all())
    if isinstance(found, (tuple, list)):
        return all(_finite(it) for it in found)
    return True
