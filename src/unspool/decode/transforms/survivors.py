"""Survivors: the tokens that a transform keeps.

survivors(f, p) = { x : f(log p)(x) > −∞ }
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from unspool.decode.arguments import function_of, shown
from unspool.decode.hypothesis import Hypothesis
from unspool.decode.transforms.scores import alive, applied, peaks
from unspool.interfaces import Step, Transform


def survivors(rule: Transform, logp: Tensor, history: Sequence[Hypothesis] = ()) -> Tensor:
    """True for tokens that survive `rule`; (V) → (V) or (N, V) → (N, V).

    `logp` are log-probabilities, or scores up to a constant for each row. `history` has a hypothesis for each
    row, for transforms that depend on the text; without it, every hypothesis is empty.
    """
    if not function_of(rule, 3):
        raise TypeError(f"the rule is {shown(rule)}, but must be a transform such as TopP(0.9).")
    if not isinstance(logp, Tensor):
        raise TypeError(f"logp is {shown(logp)}, but must be a tensor: torch.tensor([…]).")
    scores_NV = logp[None] if logp.dim() == 1 else logp
    peaks(scores_NV)
    if not isinstance(history, Sequence) or not all(
        isinstance(hypothesis, Hypothesis) for hypothesis in history
    ):
        raise TypeError(f"history is {shown(history)}, but must be a list of Hypotheses, one for each row.")
    logp_NV = torch.log_softmax(scores_NV, dim=-1)
    hypotheses = history or [Hypothesis(row, 0, ()) for row in range(len(logp_NV))]
    return alive(applied(rule, logp_NV, Step(logp_NV), hypotheses)).view_as(logp)
