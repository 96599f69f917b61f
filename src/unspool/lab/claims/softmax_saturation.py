"""Claim: large scores make the gradient of a softmax vanish; the factor 1/√I keeps their variance at 1.

    α = softmax_{t₂}(β q·k),   q, k ∈ ℝ^I with independent components of mean 0 and variance 1
    Var(q·k) = I,   so β = 1/√I gives scores of variance 1;   ∂α/∂score = diag(α) − ααᵀ

McAllester's problems, 2 (papers.bib: mcallester2020problems); He He's lecture, "Why do we need layer
normalization".
"""

from __future__ import annotations

import torch
from torch import Tensor

from unspool.lab.claim import Claim, Numbers, Progress, problems, tracked
from unspool.plots.seeds import chart, lines

WIDTHS = (1, 4, 16, 64, 256, 1024)


def gradient(scores_NT: Tensor) -> float:
    """Return the mean Frobenius norm of diag(α) − ααᵀ: ‖·‖² = Σα² − 2Σα³ + (Σα²)²."""
    a = scores_NT.softmax(-1)
    square, cube = a.square().sum(-1), a.pow(3).sum(-1)
    return float((square - 2 * cube + square.square()).clamp(min=0).sqrt().mean())


def measure(seed: int, quick: bool, progress: Progress) -> Numbers:
    """Measure random queries and keys, as at the start of training."""
    rows, keys = (200 if quick else 4000), 32
    rng = torch.Generator().manual_seed(seed)
    found: dict[str, list[float]] = {"variance": [], "plain": [], "scaled": [], "width": []}
    for width in tracked(WIDTHS, progress):
        query = torch.randn(rows, 1, width, generator=rng, dtype=torch.float64)
        # A part at a time: the keys are what takes memory.
        scores = torch.cat(
            [
                (part * torch.randn(len(part), keys, width, generator=rng, dtype=torch.float64)).sum(-1)
                for part in torch.split(query, 500)
            ]
        )
        found["width"].append(float(width))
        found["variance"].append(float((scores / width**0.5).var()))
        found["plain"].append(gradient(scores))
        found["scaled"].append(gradient(scores / width**0.5))
    return {
        "variance of scores / √I, I = 1024": found["variance"][-1],
        "gradient, unscaled, I = 1": found["plain"][0],
        "gradient, unscaled, I = 64": found["plain"][3],
        "gradient, unscaled, I = 1024": found["plain"][-1],
        "gradient, scaled, I = 1024": found["scaled"][-1],
        **found,
    }


CLAIM = Claim(
    name="softmax_saturation",
    statement="Inner products of wide vectors saturate the softmax and its gradient vanishes; the factor "
    "1/√I gives scores of variance 1 and prevents it.",
    source=problems(
        "problem 2; the lecture's slide on softmax saturation says the same", "vaswani2017attention"
    ),
    measured="Scores of 32 keys for thousands of random queries with independent components of variance 1: "
    "the norm of the softmax's Jacobian, by the width I.",
    criterion={
        "with 1/√I, scores have a variance of 1 ± 0.05": lambda n: all(
            abs(v - 1) <= 0.05 for v in n["variance"][1:]
        ),
        "unscaled, the gradient at I = 1024 is below a third of that at I = 1": lambda n: (
            n["plain"][-1] < n["plain"][0] / 3
        ),
        "unscaled, it falls from each width to the next, from I = 4 on": lambda n: all(
            b < a for a, b in zip(n["plain"][1:], n["plain"][2:], strict=False)
        ),
        "scaled, it stays within a factor of 1.5 from I = 4 to I = 1024": lambda n: (
            max(n["scaled"][1:]) < 1.5 * min(n["scaled"][1:])
        ),
    },
    measure=measure,
    draw=chart(
        lines(
            "width",
            {"plain": "softmax(q·k)", "scaled": "softmax(q·k / √I)"},
            "I, the width of queries and keys",
            "‖∂α / ∂scores‖",
            xscale="log",
            yscale="log",
        )
    ),
)
