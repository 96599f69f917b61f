"""Temperature: fixed, dynamic (by entropy), and quadratic smoothing of the scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from unspool.decode.arguments import Checked, number
from unspool.decode.hypothesis import Hypothesis
from unspool.decode.transforms.scores import alive, cut, peaks
from unspool.interfaces import Step

MIN_TEMPERATURE, MAX_TEMPERATURE = 1e-30, 1e30
"""Beyond these, float32 gives only the argmax and the uniform distribution, and rounds T to 0 or ∞."""


@dataclass(frozen=True)
class Temperature(Checked):
    """Temperature: divide the scores by T, which flattens the distribution above 1 and sharpens it below 1.

        p′(x) ∝ p(x)^(1/T) = softmax(logits / T)

    Ackley, Hinton & Sejnowski 1985 (the Boltzmann distribution); for text, Holtzman et al. 2020, §3.3.
    papers.bib: ackley1985boltzmann, holtzman2020curious

    T → 0 is the argmax and T → ∞ the uniform distribution over the remaining tokens; T = 0 is refused: use
    Greedy. No token is cut. If a later transform needs logits, the log-normaliser is divided, too. Differs
    from Hugging Face: the maximum of the row is subtracted before the division, so that the best token never
    overflows; after normalisation the result is the same.
    """

    t: float = number(1.0, above=0, advice="For the most probable token, use Greedy().")

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Hypothesis]) -> Tensor:  # noqa: ARG002
        peak_N1 = peaks(scores_NV)
        if self.t == 1:
            return scores_NV
        return divided(scores_NV, peak_N1, min(max(self.t, MIN_TEMPERATURE), MAX_TEMPERATURE), step)


def divided(scores_NV: Tensor, peak_N1: Tensor, t: float | Tensor, step: Step) -> Tensor:
    """Divide the scores by t, a number or (N, 1), and the logits, too, if a later transform needs them."""
    if step.log_norm_N is None:
        return (scores_NV - peak_N1) / t
    # (s + c)/T − c, so that the same constant c turns the result into logits/T.
    norm_N1 = step.log_norm_N[:, None]
    return (scores_NV - peak_N1) / t + ((peak_N1 + norm_N1) / t - norm_N1)


@dataclass(frozen=True)
class DynamicTemperature(Checked):
    """Dynamic temperature: a temperature between low and high that grows with the entropy.

        T = low + (high − low) · (H / log n)^γ,     p′(x) ∝ p(x)^(1/T)

    kalomaze 2024 (KoboldCpp, pull request 600; the same in llama.cpp, 4972). papers.bib: kalomaze2024dynamic

    H is the entropy of the n tokens that are not cut, and log n its maximum: a peaked row has T = `low`, a
    uniform one T = `high`. γ is `exponent`. No token is cut. llama.cpp takes a middle and a range: low is
    their difference, high their sum.
    """

    low: float = number(0.5, above=0, advice="It is the temperature of a peaked row; common is 0.5.")
    high: float = number(1.5, above=0, advice="It is the temperature of a uniform row; common is 1.5.")
    exponent: float = number(1.0, above=0, advice="Common is 1; above 1, medium rows are colder.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.high < self.low:
            raise ValueError(f"DynamicTemperature.high is {self.high}, but must be at least low, {self.low}.")

    def temperatures(self, scores_NV: Tensor) -> Tensor:
        """(N, 1): T of every row."""
        logp_NV = scores_NV.double().log_softmax(dim=-1)
        entropy_N1 = -(logp_NV.exp() * logp_NV).nan_to_num(nan=0.0).sum(dim=-1, keepdim=True)
        most_N1 = alive(scores_NV).sum(dim=-1, keepdim=True).double().log()
        share_N1 = (entropy_N1 / most_N1).nan_to_num(nan=0.0).clamp(0, 1)
        return self.low + (self.high - self.low) * share_N1**self.exponent

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Hypothesis]) -> Tensor:  # noqa: ARG002
        peak_N1 = peaks(scores_NV)
        t_N1 = self.temperatures(scores_NV).clamp(MIN_TEMPERATURE, MAX_TEMPERATURE).to(scores_NV.dtype)
        return divided(scores_NV, peak_N1, t_N1, step)


@dataclass(frozen=True)
class QuadraticSmoothing(Checked):
    """Quadratic smoothing: let the score fall with the square of the distance to the best logit.

        s′(x) = max l − f d²,     d = max l − l(x)

    kalomaze 2024 (text-generation-webui, pull request 5403). papers.bib: kalomaze2024quadratic

    f is `factor`. Good tokens become more equal, and the tail falls without a cut. Log-probabilities serve as
    logits, because d does not depend on a constant; a temperature before it changes d.
    """

    factor: float = number(0.25, above=0, advice="Common values are 0.2 … 0.4; larger is sharper.")

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Hypothesis]) -> Tensor:  # noqa: ARG002
        peak_N1 = peaks(scores_NV)
        smooth_NV = peak_N1 - self.factor * (peak_N1 - scores_NV).double().square()
        return cut(smooth_NV.to(scores_NV.dtype), alive(scores_NV))
