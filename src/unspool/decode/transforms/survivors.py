"""Which tokens a rule keeps: the question behind every picture of a decoder.

survivors(f, p) = { x : f(log p)(x) > −∞ }
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from unspool.decode.transforms.scores import alive, peaks
from unspool.protocols import Path, Step, Transform


def survivors(rule: Transform, logp: Tensor, history: Sequence[Path] = ()) -> Tensor:
    """True where a token survives `rule`; (V) → (V) or (N, V) → (N, V).

    `logp` are log-probabilities, or scores up to a constant for each row. `history` holds a path for each
    row, for the rules that look back; without it, every path is at its beginning.
    """
    scores_NV = logp[None] if logp.dim() == 1 else logp
    peaks(scores_NV)
    logp_NV = torch.log_softmax(scores_NV, dim=-1)
    paths = history or [Path(row, 0, ()) for row in range(len(logp_NV))]
    return alive(rule(logp_NV, Step(logp_NV), paths)).view_as(logp)
