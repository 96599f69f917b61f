"""Temperature: fixed, dynamic, quadratic smoothing; feedback on the text so far: Mirostat and Adaptive-P.

Feedback has no state: the target is computed from each hypothesis, so that beams fork and seeds repeat.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from unspool.arguments import Checked, number
from unspool.decode.hypothesis import Hypothesis
from unspool.decode.transforms.scores import alive, cut, peaks, precise
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


@dataclass(frozen=True)
class Mirostat(Checked):
    """Mirostat (version 2): keep the surprise of the text near τ bits per token by feedback.

        keep x  ⇔  −log₂ p(x) ≤ μ_t  or  p(x) = max p
        μ₁ = 2τ,   μ_{t+1} = μ_t − η (S_t − τ),   S_t = −log₂ q_t(x_t)      ⇒   μ_t = 2τ − η Σ_{s<t} (S_s − τ)

    q_t is the distribution that x_t was drawn from. τ is `tau`, η is `lr`.

    Basu, Ramachandran, Keskar & Varshney 2021, §4 (algorithm 1, with the Zipf estimate of k replaced by the
    direct cut at μ: "mirostat 2.0" in the authors' code). papers.bib: basu2021mirostat

    Put Mirostat last: transforms after it change q. Ties: equal probabilities are kept or cut together.
    Differs from the paper: S is measured in the truncated distribution, as in llama.cpp, not in the model's.
    """

    tau: float = number(5.0, above=0, advice="It is the target surprise in bits: 3 … 8.")
    lr: float = number(0.1, at_least=0, advice="Common is 0.1; 0 keeps mu at 2·tau.")

    def mu(self, hypothesis: Hypothesis) -> float:
        """Maximum surprise of the next token of a hypothesis, in bits."""
        bits = -math.fsum(hypothesis.scores) / math.log(2)
        return 2 * self.tau - self.lr * (bits - len(hypothesis.scores) * self.tau)

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Hypothesis]) -> Tensor:  # noqa: ARG002
        peak_N1 = peaks(scores_NV, history)
        floors = [[-self.mu(hypothesis) * math.log(2)] for hypothesis in history]
        floor_N1 = torch.tensor(floors, dtype=torch.float64, device=scores_NV.device)
        # The best token always stays.
        return cut(scores_NV, scores_NV >= torch.minimum(floor_N1, peak_N1.double()))


PEAK = 5.0
SHARPNESS = 10.0
WIDTH = 0.3
"""Constants of llama.cpp: the score at the target, its slope, and the scale of the distance."""


@dataclass(frozen=True)
class AdaptiveP(Checked):
    """Adaptive-P: favour tokens near a target probability, corrected by the average of the text.

        s′(x) = 5 − 10 d² / (1 + d),     d = |p(x) − t̂| / 0.3
        t̂ = clamp(2t − m, 0, 1),         m₀ = t,   m_{i+1} = λ m_i + (1 − λ) p(x_i)

    MrJackSpade & ddh0 2025 (llama.cpp, pull request 17927; §3 of the author's documentation).
    papers.bib: jackspade2025adaptivep

    t is `target`, λ is `decay`: the average covers about 1/(1 − λ) tokens. If the last tokens were more
    probable than the target, less probable ones are favoured, and vice versa. All improbable tokens are close
    to a low t̂, so cut them first (MinP(0.05)), and put AdaptiveP last. Cut tokens stay cut.

    Differs from llama.cpp: p(x_i) of the tokens so far is the model's; there it is the probability after
    earlier transforms. p(x) of the next token is, as there, the probability after earlier transforms.
    """

    target: float = number(0.5, at_least=0, at_most=1, advice="Common is 0.5; lower is more surprising.")
    decay: float = number(0.9, at_least=0, at_most=0.99, advice="Common is 0.9, an average over ten tokens.")

    def adapted_target(self, hypothesis: Hypothesis) -> float:
        """t̂: the target probability of the next token of a hypothesis."""
        mean = self.target
        for logp in hypothesis.logps:
            mean = self.decay * mean + (1 - self.decay) * math.exp(logp)
        return min(max(2 * self.target - mean, 0.0), 1.0)

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Hypothesis]) -> Tensor:  # noqa: ARG002
        peaks(scores_NV, history)
        wanted_N1 = scores_NV.new_tensor(
            [[self.adapted_target(hypothesis)] for hypothesis in history], dtype=torch.float64
        )
        distance_NV = (precise(scores_NV).softmax(dim=-1) - wanted_N1.to(scores_NV.dtype)).abs() / WIDTH
        shaped_NV = PEAK - SHARPNESS * distance_NV.square() / (1 + distance_NV)
        return cut(shaped_NV.to(scores_NV.dtype), alive(scores_NV))
