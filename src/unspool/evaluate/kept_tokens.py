"""Which tokens a decoder may draw next, exactly, and with which probabilities.

    K = { x : f_k(… f_1(log p(· | prefix)) …)(x) > −∞, and the pick takes x };   q(x) ∝ p_K(x) on K

A Sample draws from its reshaped scores; basis-aware sampling from the tokens among them that it accepts, one
exact test for each; Greedy has one token. A search that weighs whole texts against each other (a beam, MBR)
has no distribution over next tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unspool.decode.arguments import shown
from unspool.decode.job import Job
from unspool.decode.path import Path
from unspool.decode.picks import ArgMax, BasisAware
from unspool.decode.search import Greedy, Sample
from unspool.decode.search.reshape import prepared, reshape
from unspool.decode.transforms.scores import alive
from unspool.protocols import Step, StepModel, Transform


@dataclass(frozen=True)
class NextTokens:
    """A decoder, ready for one model and one job."""

    transforms: tuple[Transform, ...]
    pick: Any
    bound: Any
    """The pick with the model's output matrix, where it is basis-aware."""

    def __call__(self, step: Step, history: Sequence[Path]) -> tuple[Tensor, Tensor]:
        """(N, V) true where a token may be drawn, and (N, V) the log-probability with which it is."""
        scores_NV = reshape(step, history, self.transforms)
        kept_NV = alive(scores_NV)
        if isinstance(self.pick, ArgMax):
            best_N1 = scores_NV.argmax(dim=-1, keepdim=True)
            kept_NV = torch.zeros_like(kept_NV).scatter(1, best_N1, True)
        elif isinstance(self.pick, BasisAware):
            kept_NV = torch.stack(
                [self._accepted(step, scores_NV, kept_NV[row], row) for row in range(len(kept_NV))]
            )
        only_NV = scores_NV.masked_fill(~kept_NV, -torch.inf)
        return kept_NV, torch.log_softmax(only_NV, dim=-1)

    def _accepted(self, step: Step, scores_NV: Tensor, kept_V: Tensor, row: int) -> Tensor:
        order = kept_V.nonzero()[:, 0].tolist()
        taken = self.accepted(step, scores_NV, order, row)
        found_V = torch.zeros_like(kept_V)
        found_V[[token for token, took in zip(order, taken, strict=True) if took]] = True
        if not bool(found_V.any()):  # when all are rejected, the most probable is taken
            found_V[scores_NV[row].argmax()] = True
        return found_V

    def accepted(self, step: Step, scores_NV: Tensor, order: Sequence[int], row: int = 0) -> list[bool]:
        """Which of these tokens basis-aware sampling accepts."""
        tested_NV = scores_NV if self.pick.on == "processed" else step.logp_NV
        tau = self.pick.tau(tested_NV)[row]
        p_V = tested_NV[row].double().exp()
        test = self.bound.test.step(p_V)
        return [bool(p_V[token] >= tau) or bool(test.accepts(token, tau=tau)) for token in order]


def next_tokens(decoder: Greedy | Sample, model: StepModel, job: Job) -> NextTokens:
    """The decoder for this model and job."""
    if not isinstance(decoder, Greedy | Sample):
        raise TypeError(
            f"{shown(decoder)} has no distribution over next tokens: give a Sample or Greedy; other searches "
            "are measured by the texts that they find (text_truth)."
        )
    pick = decoder.pick if isinstance(decoder, Sample) else ArgMax()
    transforms = prepared(decoder.transforms, model, job)
    bound = pick.bind(model, transforms) if isinstance(pick, BasisAware) else None
    return NextTokens(transforms, pick, bound)
