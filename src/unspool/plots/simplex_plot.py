"""The picture of the basis-aware test on three tokens: which true distributions a model's output allows.

    p̂ = softmax(W h);   F = { p : Wᵀp = Wᵀp̂,  0 ≤ p ≤ e^δ p̂,  Σp = 1 }
    token i may be impossible  ⇔  some p ∈ F has pᵢ = 0

With three tokens and a hidden state of one number, a model can only say a curve of distributions, and F is a
segment of a straight line: p̂ + t·n with n orthogonal to W and to (1, 1, 1).

Finlayson et al. 2024, figures 2 and 3. papers.bib: finlayson2024closing
Symbols: W is `weights`, h `hidden`, δ `delta`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, expm1, log
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unspool.basis import tau_from_delta
from unspool.decode.arguments import as_number, items, shown
from unspool.plots.canvas import BLUE, GREEN, INK, ORANGE, RED, canvas

Array = NDArray[np.float64]

PAPER = ((0.55, 0.71, 0.29), 2.55, log(1.9))
"""The example of the paper: W, h and δ."""


@dataclass(frozen=True, eq=False)
class Feasible:
    """What may be true when a model of three tokens says p̂."""

    p: Array
    """p̂."""
    ends: tuple[Array, Array]
    """The two ends of the segment F."""
    line: tuple[Array, Array]
    """The two ends of { Wᵀp = Wᵀp̂ } in the simplex: F without the bound on the error."""
    tau: float
    """1 − e^(−δ)."""

    @property
    def may_be_zero(self) -> tuple[bool, ...]:
        """Of each token, whether F has a distribution without it."""
        return tuple(bool(min(end[i] for end in self.ends) == 0) for i in range(3))


def feasible(weights: tuple[float, float, float], hidden: float, delta: float) -> Feasible:
    """F for one hidden state."""
    tau, hidden = tau_from_delta(delta), as_number("hidden", hidden, advice="It is the hidden state.")
    given = items("weights", weights, "three numbers")
    w = np.array([as_number("weights", it, advice="Give three numbers.") for it in given], dtype=float)
    if w.shape != (3,) or np.ptp(w) == 0:
        raise ValueError(f"weights is {shown(weights)}, but must be three numbers that are not all equal.")
    logits = w * hidden
    p = np.exp(logits - logits.max())
    p /= p.sum()
    direction = np.cross(w, np.ones(3))
    in_box = _segment(p, direction, np.zeros(3), _grown(p, delta))
    return Feasible(p, in_box, _segment(p, direction, np.zeros(3), np.ones(3)), tau)


def _grown(p: Array, delta: float) -> Array:
    """e^δ·p̂, where it is less than 1; no δ beyond 700 is told from 700, whose box holds the triangle."""
    return np.minimum(exp(min(delta, 700.0)) * p, 1.0)


def _segment(p: Array, direction: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """The ends of p + t·direction within the box."""
    moving = direction != 0
    bounds = np.stack([(low - p)[moving] / direction[moving], (high - p)[moving] / direction[moving]])
    ends = []
    for t in (bounds.min(axis=0).max(), bounds.max(axis=0).min()):
        end = p + t * direction
        end[np.abs(end) < 1e-12] = 0.0
        ends.append(end)
    return ends[0], ends[1]


def draw_simplex(
    path: str | Path,
    weights: tuple[float, float, float] = PAPER[0],
    hidden: float = PAPER[1],
    delta: float = PAPER[2],
) -> None:
    """Save the picture (.svg, .png, .pdf)."""
    found = feasible(weights, hidden, delta)
    with canvas(path, 6.4, 4.4) as figure:
        panel = figure.subplots()
        panel.set_aspect("equal")
        panel.axis("off")
        panel.plot(*_flat(np.eye(3)[[0, 1, 2, 0]]), color=INK, linewidth=1)
        _draw_box(panel, found.p, delta)
        spread = np.linspace(-60, 60, 2001)[:, None] * np.array(weights)
        curve = np.exp(spread - spread.max(axis=1, keepdims=True))
        curve /= curve.sum(axis=1, keepdims=True)
        panel.plot(*_flat(curve), color=BLUE, linewidth=1.6, label="all that the model can say")
        panel.plot(*_flat(np.stack(found.line)), color=ORANGE, linestyle="--", label="Wᵀp = Wᵀp̂")
        thick = {"linewidth": 3.2, "solid_capstyle": "round"}
        panel.plot(*_flat(np.stack(found.ends)), color=ORANGE, label="both: what may be true", **thick)
        panel.plot(*_flat(found.p[None]), "o", color=BLUE, markersize=8, label="p̂: what it says")
        without = [end for end in found.ends if end.min() == 0]
        if without:
            panel.plot(
                *_flat(np.stack(without)),
                "o",
                color=GREEN,
                markersize=8,
                label="may be true, without a token",
            )
        _draw_words(panel, found)


def _flat(p_N3: Array) -> tuple[Array, Array]:
    """Distributions as points of a triangle: token 1 left, token 2 right, token 3 on top."""
    return p_N3[:, 1] + p_N3[:, 2] / 2, p_N3[:, 2] * np.sqrt(3) / 2


def _draw_box(panel: Any, p: Array, delta: float) -> None:
    """Shade { p ≤ e^δ p̂ }: the triangle, cut at three lines parallel to its sides."""
    corners: list[Array] = list(np.eye(3))
    for i in range(3):
        limit, cut = _grown(p, delta)[i], []
        for a, b in zip(corners, corners[1:] + corners[:1], strict=True):
            if a[i] <= limit:
                cut.append(a)
            if (a[i] - limit) * (b[i] - limit) < 0:
                cut.append(a + (limit - a[i]) / (b[i] - a[i]) * (b - a))
        corners = cut
    panel.fill(
        *_flat(np.stack(corners)),
        color=ORANGE,
        alpha=0.16,
        linewidth=0,
        label=f"p ≤ e^δ·p̂,  τ = {-expm1(-delta):.3f}",
    )


def _draw_words(panel: Any, found: Feasible) -> None:
    places = ((-0.03, -0.03, "right", "top"), (1.03, -0.03, "left", "top"), (0.5, 0.9, "center", "bottom"))
    for i, (x, y, ha, va) in enumerate(places):
        verdict = "may be impossible: cut" if found.may_be_zero[i] else "must be possible: kept"
        alone = "kept" if found.p[i] >= found.tau else "cut"
        text = f"token {i + 1}\np̂ = {found.p[i]:.3f}\n{verdict}\n(by p̂ ≥ τ alone: {alone})"
        colour = RED if found.may_be_zero[i] else INK
        panel.text(x, y, text, ha=ha, va=va, color=colour, linespacing=1.3)
    panel.legend(loc="upper left", bbox_to_anchor=(0.66, 1.0), frameon=False, fontsize=8.5)
    panel.set_xlim(-0.45, 1.5)
    panel.set_ylim(-0.28, 1.12)
