"""Claim (Lemma A.1): if the contexts of a word form two parts, two senses represent one part each.

    P(s = ⟨i,1⟩ | y = i) → 1 in part 1   ⇒   ∂L/∂w_i² comes from part 2, and w_i² moves there

Miao et al. 2019, appendix A, Lemma A.1 (papers.bib: miao2019kernelized).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from unspool.heads.kerbs import Kerbs
from unspool.heads.kerbs_kernel import kernel
from unspool.lab.claim import Claim, Numbers, Progress, kerbs, tracked
from unspool.plots.seeds import chart, lines

WIDTH, EACH, STEPS = 8, 50, 250


def descend(head: Kerbs, parameters: Sequence[Any], hidden: Tensor, targets: Tensor, rate: float) -> None:
    """Take one step of gradient descent."""
    loss, _ = head.loss(hidden, targets, torch.ones(len(targets)))
    grads = torch.autograd.grad(loss / len(targets), list(parameters))
    for parameter, grad in zip(parameters, grads, strict=True):
        parameter.data -= rate * grad


def clusters(second: Tensor, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return contexts of word 0 around an axis and `second`, and of words 1 and 2 around ± another axis."""
    axes = torch.eye(WIDTH)
    centres = torch.stack([axes[0], second, axes[2], -axes[2]]).repeat_interleave(EACH, 0)
    hidden = 3 * centres + 0.3 * torch.randn(4 * EACH, WIDTH, generator=rng)
    return hidden, torch.tensor([0, 0, 1, 2]).repeat_interleave(EACH)


@torch.no_grad()
def shares(head: Kerbs, hidden: Tensor) -> Tensor:
    """Return the use of the two senses of word 0 in each part of its contexts: (2, 2)."""
    scores = kernel(hidden[: 2 * EACH], head.senses_SD, head.theta_S)[:, [0, 3]]
    return scores.softmax(-1).reshape(2, EACH, 2).mean(1)


def new_sense(seed: int, copied: bool) -> list[Tensor]:
    """Start the first sense in the first part, and the second near 0 or as a copy of the first."""
    rng, axes = torch.Generator().manual_seed(seed), torch.eye(WIDTH)
    hidden, targets = clusters(math.cos(2 * math.pi / 3) * axes[0] + math.sin(2 * math.pi / 3) * axes[1], rng)
    head = Kerbs(WIDTH, torch.tensor([0, 1, 2, 0]), 3)
    new = 2 * copied * axes[0] + 0.2 * torch.randn(WIDTH, generator=rng) / WIDTH**0.5
    head.senses_SD.data = torch.stack([2 * axes[0], 2 * axes[2], -2 * axes[2], new])
    seen = [shares(head, hidden)]
    for _ in range(STEPS):
        descend(head, [head.senses_SD], hidden, targets, 0.3)
        seen.append(shares(head, hidden))
    return seen


def from_anywhere(seed: int) -> list[Tensor]:
    """Start both senses at random, and learn every θ as well."""
    rng, axes = torch.Generator().manual_seed(seed), torch.eye(WIDTH)
    hidden, targets = clusters(-axes[0], rng)
    head = Kerbs(WIDTH, torch.tensor([0, 1, 2, 0]), 3)
    head.senses_SD.data = torch.randn(4, WIDTH, generator=rng) / WIDTH**0.5
    seen = [shares(head, hidden)]
    for _ in range(STEPS):
        descend(head, [head.senses_SD, head.theta_S], hidden, targets, 0.3)
        seen.append(shares(head, hidden))
    return seen


WAYS: dict[str, Callable[[int], list[Tensor]]] = {
    "begun near 0": partial(new_sense, copied=False),
    "begun as a copy": partial(new_sense, copied=True),
    "all begun at random": from_anywhere,
}


def parted(seen: Tensor) -> float:
    """Return the smaller use of the assigned sense in its part, for the better assignment."""
    return float(torch.stack([seen.diagonal().min(), seen.flip(1).diagonal().min()]).max())


def measure(seed: int, quick: bool, progress: Progress) -> Numbers:
    """Measure three initialisations."""
    del quick  # it takes a second
    ways = tracked(WAYS.items(), progress)
    curves = {name: [parted(shares) for shares in way(seed)[::10]] for name, way in ways}
    return {
        **{f"{name}: the part's own sense is used": curve[-1] for name, curve in curves.items()},
        "steps": [10.0 * at for at in range(STEPS // 10 + 1)],
        **curves,
    }


CLAIM = Claim(
    name="second_sense",
    statement="Lemma A.1: KerBS learns several senses. If the contexts of a word are disconnected parts, its "
    "senses represent one part each.",
    source=kerbs("Lemma A.1"),
    measured="Fixed context vectors in 8 dimensions: a word with two clusters, 120° apart (180° in the "
    "third way), and two other words. One sense starts in the first cluster, the second is new; gradient "
    "descent for 250 steps.",
    criterion={
        f"{name}: in each part, its own sense is used for at least 0.95": lambda n, name=name: (  # type: ignore[misc]
            n[f"{name}: the part's own sense is used"] >= 0.95
        )
        for name in WAYS
    },
    measure=measure,
    draw=chart(
        lines(
            "steps",
            {name: name for name in WAYS},
            "steps of gradient descent",
            "how much each part's\nown sense is used there",
            ylim=(0, 1.03),
        )
    ),
)
