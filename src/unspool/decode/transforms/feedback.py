"""Mirostat (version 2): steer the surprise of the text towards τ bits a token by feedback.

    keep x  ⇔  −log₂ p(x) ≤ μ_t  or  p(x) = max p
    μ₁ = 2τ,   μ_{t+1} = μ_t − η (S_t − τ),   S_t = −log₂ q_t(x_t)      ⇒   μ_t = 2τ − η Σ_{s<t} (S_s − τ)

q_t is the distribution that x_t was drawn from.

Basu, Ramachandran, Keskar & Varshney 2021, §4 (algorithm 1, with the Zipf estimate of k replaced by the
direct cut at μ: "mirostat 2.0" in the authors' code).
papers.bib: basu2021mirostat

τ is `tau`, η is `lr`. There is no state: μ is computed anew from the scores on each hypothesis, which are the
log-probabilities of its tokens in the distributions that they were drawn from. So a beam may fork it and a
seed repeats it. Put Mirostat last: transforms after it change q and so what it learns from. Ties: equal
probabilities are kept or cut together. Differs from the paper: S is measured in the truncated distribution,
as llama.cpp does, not in the model's own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from unspool.decode.arguments import check_number
from unspool.decode.hypothesis import Hypothesis
from unspool.decode.transforms.scores import alive, cut, peaks, precise
from unspool.interfaces import Step


@dataclass(frozen=True)
class Mirostat:
    """Keep tokens of at most mu bits, mu following the text."""

    tau: float = 5.0
    lr: float = 0.1

    def __post_init__(self) -> None:
        check_number(self, "tau", above=0, advice="It is the surprise aimed at, in bits: 3 … 8.")
        check_number(self, "lr", at_least=0, advice="Common is 0.1; 0 keeps mu at 2·tau.")

    def mu(self, hypothesis: Hypothesis) -> float:
        """The most bits that the next token of a hypothesis may have."""
        bits = -math.fsum(hypothesis.scores) / math.log(2)
        return 2 * self.tau - self.lr * (bits - len(hypothesis.scores) * self.tau)

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Hypothesis]) -> Tensor:  # noqa: ARG002
        """(N, V) → (N, V)."""
        peak_N1 = peaks(scores_NV, history)
        floors = [[-self.mu(hypothesis) * math.log(2)] for hypothesis in history]
        floor_N1 = torch.tensor(floors, dtype=torch.float64, device=scores_NV.device)
        # Where even the best token is too surprising, the floor comes down to it.
        return cut(scores_NV, scores_NV >= torch.minimum(floor_N1, peak_N1.double()))


PEAK = 5.0
SHARPNESS = 10.0
WIDTH = 0.3
"""llama.cpp's constants: the score at the target, how fast it falls, and over which distance."""


@dataclass(frozen=True)
class AdaptiveP:
    """Favour tokens near a target probability, which is corrected by what was written.

    Adaptive-P: favour tokens whose probability is near a target that keeps the text's average there.

        s′(x) = 5 − 10 d² / (1 + d),     d = |p(x) − t̂| / 0.3
        t̂ = clamp(2t − m, 0, 1),         m₀ = t,   m_{i+1} = λ m_i + (1 − λ) p(x_i)

    MrJackSpade & ddh0 2025 (llama.cpp, pull request 17927; §3 of the author's documentation).
    papers.bib: jackspade2025adaptivep

    t is `target`, λ is `decay`: the average looks back over about 1/(1 − λ) tokens. Where the last tokens
    were more probable than the target, less probable ones are favoured, and the other way round. Only the
    distance to t̂ counts, so that two tokens of one probability stay equal; many improbable tokens are each
    as near to a low t̂ as the next, so cut them first (MinP(0.05)), and put AdaptiveP last. Tokens that were
    cut stay cut.

    There is no state: m is computed anew from each hypothesis, so a beam may fork it and a seed repeats it.
    Differs from llama.cpp: p(x_i) of the tokens so far is the model's own; there it is what the rules before
    left of it. Without rules before it, the two are the same. p(x) of the token to come is, here as there,
    what the rules before left.
    """

    target: float = 0.5
    decay: float = 0.9

    def __post_init__(self) -> None:
        check_number(
            self, "target", at_least=0, at_most=1, advice="0.3 surprises, 0.5 is usual, 0.9 hardly dares."
        )
        check_number(
            self, "decay", at_least=0, at_most=0.99, advice="Common is 0.9: it remembers ten tokens."
        )

    def adapted(self, hypothesis: Hypothesis) -> float:
        """t̂: the probability that the next token of a hypothesis is best to have."""
        mean = self.target
        for logp in hypothesis.logps:
            mean = self.decay * mean + (1 - self.decay) * math.exp(logp)
        return min(max(2 * self.target - mean, 0.0), 1.0)

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Hypothesis]) -> Tensor:  # noqa: ARG002
        """(N, V) → (N, V)."""
        peaks(scores_NV, history)
        wanted_N1 = scores_NV.new_tensor(
            [[self.adapted(hypothesis)] for hypothesis in history], dtype=torch.float64
        )
        distance_NV = (precise(scores_NV).softmax(dim=-1) - wanted_N1.to(scores_NV.dtype)).abs() / WIDTH
        shaped_NV = PEAK - SHARPNESS * distance_NV.square() / (1 + distance_NV)
        return cut(shaped_NV.to(scores_NV.dtype), alive(scores_NV))
