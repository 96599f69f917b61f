"""Feedback sampling: Mirostat and Adaptive-P adjust a target to the text so far.

Neither has a state: the target is computed from each hypothesis, so that beams fork and seeds repeat.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from unspool.decode.arguments import Checked, number
from unspool.decode.hypothesis import Hypothesis
from unspool.decode.transforms.scores import alive, cut, peaks, precise
from unspool.interfaces import Step


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
