"""Claim: deep networks are bad at learning the identity; with residual connections they start near it.

    h ← f(h)   against   h ← h + f(h):   for the identity, f must be the identity, or 0

He He's lecture, "Residual connection"; He et al. 2015.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from unspool.lab.claim import Claim, Numbers, Progress, lecture, points, tracked
from unspool.plots.seeds import chart, lines

DEPTHS = (1, 2, 4, 8, 16, 32)
WIDTH = 32


class Stack(nn.Module):
    """A stack of feed-forward blocks: two matrices with a ReLU in between."""

    def __init__(self, depth: int, residual: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)) for _ in range(depth)
        )
        self.residual = residual

    def forward(self, x: Tensor) -> Tensor:
        """(N, D) → (N, D)."""
        for layer in self.layers:
            x = x + layer(x) if self.residual else layer(x)
        return x


def error(depth: int, residual: bool, seed: int, updates: int) -> tuple[float, float]:
    """Return the error relative to a variance of 1, and the first gradient in the lowest layer."""
    torch.manual_seed(seed)
    rng = torch.Generator().manual_seed(seed)
    model = Stack(depth, residual)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    first = 0.0
    for update in range(updates):
        x_ND = torch.randn(64, WIDTH, generator=rng)
        loss = (model(x_ND) - x_ND).square().mean()
        optimizer.zero_grad()
        loss.backward()
        if update == 0:
            first = float(next(model.parameters()).grad.norm())  # type: ignore[union-attr]
        optimizer.step()
    x_ND = torch.randn(512, WIDTH, generator=rng)
    with torch.no_grad():
        return float((model(x_ND) - x_ND).square().mean()), first


def measure(seed: int, quick: bool, progress: Progress) -> Numbers:
    """Train both kinds at every depth."""
    found: dict[str, list[float]] = {
        name: [] for name in ("plain", "residual", "plain gradient", "residual gradient")
    }
    for depth in tracked(DEPTHS, progress):
        for name, residual in (("plain", False), ("residual", True)):
            left, first = error(depth, residual, seed, 20 if quick else 400)
            found[name].append(left)
            found[f"{name} gradient"].append(first)
    errors = {name: found[name] for name in ("plain", "residual")}
    return {
        **points("{}, {} layers: error", DEPTHS, errors),
        "plain, 32 layers: first gradient at the bottom": found["plain gradient"][-1],
        "residual, 32 layers: first gradient at the bottom": found["residual gradient"][-1],
        "depth": list(map(float, DEPTHS)),
        **found,
    }


CLAIM = Claim(
    name="residual_identity",
    statement="Deep networks are hard to optimise and bad at learning the identity; residual connections "
    "make it easy, and depth does no harm.",
    source=lecture("Residual connection", "vaswani2017attention"),
    measured="Stacks of 1 to 32 ReLU layers of width 32 learn for 400 updates (Adam) to copy their "
    "input, with and without residual connections: mean squared error on new inputs of variance 1, and the "
    "first gradient in the lowest layer.",
    criterion={
        "without: 32 layers have learnt nothing (error above 0.9)": lambda n: n["plain"][-1] > 0.9,
        "without: 32 layers do at least twice as badly as 2": lambda n: n["plain"][-1] >= 2 * n["plain"][1],
        "with: 32 layers have an error below 0.1": lambda n: n["residual"][-1] < 0.1,
        "without, less than 1e-3 of the gradient arrives at the bottom of 32 layers": lambda n: (
            n["plain gradient"][-1] < 1e-3 * n["residual gradient"][-1]
        ),
    },
    measure=measure,
    draw=chart(
        lines(
            "depth",
            {"plain": "h ← f(h)", "residual": "h ← h + f(h)"},
            "layers",
            "mean squared error (1: nothing learnt)",
            limit=1.0,
            ticks=DEPTHS,
            xscale="log",
            yscale="log",
        )
    ),
)
