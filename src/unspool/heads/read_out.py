"""What a model says of its hidden vectors: one Step, with the way back from log p to the head's logits.

    log p_i = z_i − log Σ_j exp(z_j),   so that   log_norm = z_i − log p_i   for any i

Rules that are published on logits (the repetition penalty) need it; a head whose log-probabilities are no
log_softmax (a mixture of softmaxes) has none.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from unspool.heads.softmax import normalised
from unspool.interfaces import Step


def read_out(head: Any, hidden_ND: Tensor, attention: Tensor | None = None) -> Step:
    """The head's log-probabilities after every row."""
    if head.logits is None:
        return Step(head(hidden_ND), hidden_ND, attention)
    logits_NV = head.logits(hidden_ND)
    logp_NV = normalised(logits_NV)
    return Step(logp_NV, hidden_ND, attention, log_norm_N=logits_NV[:, 0] - logp_NV[:, 0])
