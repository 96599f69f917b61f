"""Quadratic smoothing: let a token's score fall with the square of how far its logit is below the best.

    s′(x) = max l − (a d² + b d³),     d = max l − l(x),     a = f (3 − c)/2,   b = f (c − 1)/2

kalomaze 2024 (text-generation-webui, pull requests 5403 and 5551).
papers.bib: kalomaze2024quadratic

f is `factor`, c is `curve`. Near the best the scores move together, so that good tokens become more equal;
far from it they move apart, and the tail goes without a cut. c = 1 is the square alone, c = 3 the cube alone:
a larger c is milder to the near and harder on the far. At d = 1 it is always f: f = 1 leaves a token there.
Log-probabilities serve as logits, since d does not depend on a constant; a temperature before it changes d.
Differs from the tools that offer it: c above 3 is refused, where a token below the best would overtake it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from unspool.decode.arguments import number
from unspool.decode.path import Path
from unspool.decode.transforms.scores import alive, cut, peaks
from unspool.protocols import Step


@dataclass(frozen=True)
class QuadraticSmoothing:
    """Replace the distance to the best score by factor times its square."""

    factor: float = 0.25
    curve: float = 1.0

    def __post_init__(self) -> None:
        number(self, "factor", above=0, advice="Common values are 0.2 … 0.4; larger is sharper.")
        number(self, "curve", at_least=1, at_most=3, advice="1 is the square alone, 3 the cube.")

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Path]) -> Tensor:  # noqa: ARG002
        """(N, V) → (N, V)."""
        peak_N1 = peaks(scores_NV)
        square, cube = self.factor * (3 - self.curve) / 2, self.factor * (self.curve - 1) / 2
        below_NV = (peak_N1 - scores_NV).double()
        smooth_NV = peak_N1 - below_NV.square() * (square + cube * below_NV)
        return cut(smooth_NV.to(scores_NV.dtype), alive(scores_NV))
