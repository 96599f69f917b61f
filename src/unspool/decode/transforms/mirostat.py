"""Mirostat (version 2): steer the surprise of the text towards τ bits a token by feedback.

    keep x  ⇔  −log₂ p(x) ≤ μ_t  or  p(x) = max p
    μ₁ = 2τ,   μ_{t+1} = μ_t − η (S_t − τ),   S_t = −log₂ q_t(x_t)      ⇒   μ_t = 2τ − η Σ_{s<t} (S_s − τ)

q_t is the distribution that x_t was drawn from.

Basu, Ramachandran, Keskar & Varshney 2021, §4 (algorithm 1, with the Zipf estimate of k replaced by the
direct cut at μ: "mirostat 2.0" in the authors' code).
papers.bib: basu2021mirostat

τ is `tau`, η is `lr`.
There is no state: μ is computed anew from the scores on each path, which are the log-probabilities of its
tokens in the distributions that they were drawn from. So a beam may fork it and a seed repeats it. Put
Mirostat last: transforms after it change q and so what it learns from.
Ties: equal probabilities are kept or cut together.
Differs from the paper: S is measured in the truncated distribution, as llama.cpp does, not in the model's
own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from unspool.decode.arguments import number
from unspool.decode.path import Path
from unspool.decode.transforms.scores import cut, peaks
from unspool.protocols import Step


@dataclass(frozen=True)
class Mirostat:
    """Keep tokens of at most mu bits, mu following the text."""

    tau: float = 5.0
    lr: float = 0.1

    def __post_init__(self) -> None:
        number(self, "tau", above=0, advice="It is the surprise aimed at, in bits: 3 … 8.")
        number(self, "lr", at_least=0, advice="Common is 0.1; 0 keeps mu at 2·tau.")

    def mu(self, path: Path) -> float:
        """The most bits that the next token of a path may have."""
        bits = -math.fsum(path.scores) / math.log(2)
        return 2 * self.tau - self.lr * (bits - len(path.scores) * self.tau)

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Path]) -> Tensor:  # noqa: ARG002
        """(N, V) → (N, V)."""
        peak_N1 = peaks(scores_NV, history)
        floors = [[-self.mu(path) * math.log(2)] for path in history]
        floor_N1 = torch.tensor(floors, dtype=torch.float64, device=scores_NV.device)
        # Where even the best token is too surprising, the floor comes down to it.
        return cut(scores_NV, scores_NV >= torch.minimum(floor_N1, peak_N1.double()))
