"""XTC, exclude top choices: with some probability, cut all likely tokens except the least likely one.

    L = { x : p(x) ≥ θ };   with probability π, cut all of L but argmin_{x∈L} p(x)

Weidmann 2024.
papers.bib: weidmann2024xtc

θ is `threshold`, π is `probability`. If fewer than two tokens reach θ, nothing is cut; so θ > ½ never cuts.
Ties: all tokens that tie for the least probable of L stay. `spare`: if one of these tokens would be cut,
nothing is cut (the author spares line feeds and the end of text). Differs from the original: the random draw
is a hash of the random stream (`decode.rng`) and the tokens, so that it is the same for the same text, seed
and sample in any batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from unspool.decode.arguments import Checked, number, token_ids, within
from unspool.decode.hypothesis import Hypothesis, Job
from unspool.decode.rng import stream_key, uniform
from unspool.decode.transforms.scores import cut, peaks, precise
from unspool.interfaces import Step, StepModel


@dataclass(frozen=True)
class XTC(Checked):
    """XTC(0.1, 0.5): with probability 0.5, cut all likely tokens except the least likely one."""

    threshold: float = number(
        0.1, above=0, at_most=1, advice="The author recommends 0.1; above 0.5 nothing is ever cut."
    )
    probability: float = number(0.5, at_least=0, at_most=1, advice="The author recommends 0.5; 0 never cuts.")
    spare: tuple[int, ...] = token_ids(())
    job: Job | None = field(default=None, init=False, repr=False, compare=False)
    """Bound job; None: every text has the random stream of seed 0."""
    keys: dict[tuple[int, int], int] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Keys of the random streams, by request and sample."""

    def bind(self, model: StepModel, job: Job) -> XTC:  # noqa: ARG002
        ready = replace(self)
        object.__setattr__(ready, "job", job)
        return ready

    def draw_uniform(self, hypothesis: Hypothesis) -> float:
        """A number in [0, 1) from the random stream and the tokens of a hypothesis."""
        if self.job is None:
            return uniform(stream_key(0, hypothesis.prompt, hypothesis.sample), hypothesis.tokens)
        text = hypothesis.request, hypothesis.sample
        if text not in self.keys:
            self.keys[text] = self.job.stream_key(*text)
        return uniform(self.keys[text], hypothesis.tokens)

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Hypothesis]) -> Tensor:  # noqa: ARG002
        peaks(scores_NV, history)
        within("XTC.spare", self.spare, scores_NV.shape[1])
        is_cutting = [[self.draw_uniform(hypothesis) < self.probability] for hypothesis in history]
        is_cutting_N1 = torch.tensor(is_cutting, device=scores_NV.device)
        p_NV = precise(scores_NV).softmax(dim=-1)
        likely_NV = p_NV >= self.threshold
        least_N1 = p_NV.masked_fill(~likely_NV, math.inf).amin(dim=-1, keepdim=True)
        top_NV = likely_NV & (p_NV > least_N1)
        spared_N1 = top_NV[:, list(self.spare)].any(dim=-1, keepdim=True)
        return cut(scores_NV, ~(top_NV & is_cutting_N1 & ~spared_N1))
