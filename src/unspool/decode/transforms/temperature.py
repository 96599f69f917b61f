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

from unspool.decode.arguments import check_number
from unspool.decode.hypothesis import Hypothesis
from unspool.decode.transforms.scores import alive, cut, peaks
from unspool.interfaces import Step

COLDEST, HOTTEST = 1e-30, 1e30
"""Beyond these, float32 knows only the argmax and the uniform distribution, and would round T to 0 or ∞."""


@dataclass(frozen=True)
class Temperature:
    """Divide every score by t."""

    t: float = 1.0

    def __post_init__(self) -> None:
        check_number(self, "t", above=0, advice="For the most probable token always, use Greedy().")

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Hypothesis]) -> Tensor:  # noqa: ARG002
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


@dataclass(frozen=True)
class DynamicTemperature:
    """Divide every score by a temperature between low and high that follows the entropy.

    Dynamic temperature: flatten a distribution the more, the flatter it is.

        T = low + (high − low) · (H / log n)^γ,     p′(x) ∝ p(x)^(1/T)

    kalomaze 2024 (KoboldCpp, pull request 600; the same in llama.cpp, 4972).
    papers.bib: kalomaze2024dynamic

    H is the entropy of the n tokens that no rule has cut, and log n the most that it can be: a sure row is
    divided by `low`, a uniform one by `high`. γ is `exponent`. No token is cut, and a row of one token stays
    as it is. llama.cpp asks for a middle and a range: low is their difference, high their sum.
    """

    low: float = 0.5
    high: float = 1.5
    exponent: float = 1.0

    def __post_init__(self) -> None:
        check_number(self, "low", above=0, advice="It is the temperature of a sure row; common is 0.5.")
        check_number(self, "high", at_least=self.low, advice="It is that of a uniform row; common is 1.5.")
        check_number(self, "exponent", above=0, advice="Common is 1; above 1, medium rows stay colder.")

    def temperatures(self, scores_NV: Tensor) -> Tensor:
        """(N, 1): T of every row."""
        logp_NV = scores_NV.double().log_softmax(dim=-1)
        entropy_N1 = -(logp_NV.exp() * logp_NV).nan_to_num(nan=0.0).sum(dim=-1, keepdim=True)
        most_N1 = alive(scores_NV).sum(dim=-1, keepdim=True).double().log()
        share_N1 = (entropy_N1 / most_N1).nan_to_num(nan=0.0).clamp(0, 1)
        return self.low + (self.high - self.low) * share_N1**self.exponent

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Hypothesis]) -> Tensor:  # noqa: ARG002
        """(N, V) → (N, V)."""
        peak_N1 = peaks(scores_NV)
        t_N1 = self.temperatures(scores_NV).clamp(COLDEST, HOTTEST).to(scores_NV.dtype)
        return divided(scores_NV, peak_N1, t_N1, step)


@dataclass(frozen=True)
class QuadraticSmoothing:
    """Replace the distance to the best score by factor times its square.

    Quadratic smoothing: let a token's score fall with the square of how far its logit is below the best.

        s′(x) = max l − (a d² + b d³),     d = max l − l(x),     a = f (3 − c)/2,   b = f (c − 1)/2

    kalomaze 2024 (text-generation-webui, pull requests 5403 and 5551).
    papers.bib: kalomaze2024quadratic

    f is `factor`, c is `curve`. Near the best the scores move together, so that good tokens become more
    equal; far from it they move apart, and the tail goes without a cut. c = 1 is the square alone, c = 3 the
    cube alone: a larger c is milder to the near and harder on the far. At d = 1 it is always f: f = 1 leaves
    a token there. Log-probabilities serve as logits, since d does not depend on a constant; a temperature
    before it changes d. Differs from the tools that offer it: c above 3 is refused, where a token below the
    best would overtake it.
    """

    factor: float = 0.25
    curve: float = 1.0

    def __post_init__(self) -> None:
        check_number(self, "factor", above=0, advice="Common values are 0.2 … 0.4; larger is sharper.")
        check_number(self, "curve", at_least=1, at_most=3, advice="1 is the square alone, 3 the cube.")

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Hypothesis]) -> Tensor:  # noqa: ARG002
        """(N, V) → (N, V)."""
        peak_N1 = peaks(scores_NV)
        square, cube = self.factor * (3 - self.curve) / 2, self.factor * (self.curve - 1) / 2
        below_NV = (peak_N1 - scores_NV).double()
        smooth_NV = peak_N1 - below_NV.square() * (square + cube * below_NV)
        return cut(smooth_NV.to(scores_NV.dtype), alive(scores_NV))
