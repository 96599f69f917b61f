"""Temperature: flatten the distribution above 1, sharpen it below 1.

    p′(x) ∝ p(x)^(1/T) = softmax(logits / T)

Ackley, Hinton & Sejnowski 1985 (the Boltzmann distribution); for text, Holtzman et al. 2020, §3.3.
papers.bib: ackley1985boltzmann, holtzman2020curious

T → 0 is the argmax and T → ∞ the uniform distribution over the tokens that are left; T = 0 itself is not
allowed: use Greedy. No token is cut.

Logits are divided as well: where a later rule asks for them, the constant moves with the scores.
Differs from Hugging Face: the row's maximum is subtracted before the division, so that no T overflows the
best token; after normalisation the result is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from unspool.decode.arguments import number
from unspool.decode.path import Path
from unspool.decode.transforms.scores import peaks
from unspool.protocols import Step

COLDEST, HOTTEST = 1e-30, 1e30
"""Beyond these, float32 knows only the argmax and the uniform distribution, and would round T to 0 or ∞."""


@dataclass(frozen=True)
class Temperature:
    """Divide every score by t."""

    t: float = 1.0

    def __post_init__(self) -> None:
        number(self, "t", above=0, advice="For the most probable token always, use Greedy().")

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Path]) -> Tensor:  # noqa: ARG002
        """(N, V) → (N, V)."""
        peak_N1 = peaks(scores_NV)
        if self.t == 1:
            return scores_NV
        return divided(scores_NV, peak_N1, min(max(self.t, COLDEST), HOTTEST), step)


def divided(scores_NV: Tensor, peak_N1: Tensor, t: float | Tensor, step: Step) -> Tensor:
    """The scores over t, a number or (N, 1), and the logits with them where a later rule asks for these."""
    if step.log_norm_N is None:
        return (scores_NV - peak_N1) / t
    # (s + c)/T − c, so that the same constant c turns the result into logits/T.
    norm_N1 = step.log_norm_N[:, None]
    return (scores_NV - peak_N1) / t + ((peak_N1 + norm_N1) / t - norm_N1)
