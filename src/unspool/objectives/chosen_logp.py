"""log p of chosen tokens, with gradients, without ever holding all (M, V) of them.

    log p(token | hidden) = head(hidden)[token]

Rows are taken some at a time, and the head is asked again when gradients are wanted (Chen et al. 2016,
papers.bib: chen2016training): memory is that of one piece, however many rows and however large a vocabulary.
Shapes: M places, C tokens chosen at each.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from unspool.data.batch import Batch
from unspool.protocols import Trainable

CELLS = 1 << 22
"""Log-probabilities held at once."""


def chosen_logp(head: Any, hidden_MD: Tensor, tokens_MC: Tensor, vocab_size: int) -> Tensor:
    """(M, C): log p of these tokens at each place."""
    rows = max(1, CELLS // vocab_size)
    if len(hidden_MD) <= rows:
        return _logp(head, hidden_MD, tokens_MC)
    starts = range(0, len(hidden_MD), rows)
    pieces = [(hidden_MD[at : at + rows], tokens_MC[at : at + rows]) for at in starts]
    found = [
        checkpoint(_logp, head, *it, use_reentrant=False, preserve_rng_state=False)
        if torch.is_grad_enabled()
        else _logp(head, *it)
        for it in pieces
    ]
    return torch.cat(found)


def _logp(head: Any, hidden_MD: Tensor, tokens_MC: Tensor) -> Tensor:
    logp_MC: Tensor = head(hidden_MD).gather(1, tokens_MC)
    return logp_MC


def target_logp(model: Trainable, batch: Batch) -> Tensor:
    """(N, U): log p of every target, times its weight: 0 for padding."""
    hidden_NUD, real_NU = model.hidden_for(batch), batch.weights_NU != 0
    targets_M1 = batch.targets_NU[real_NU][:, None]
    logp_M = chosen_logp(model.head, hidden_NUD[real_NU], targets_M1, _size(model))[:, 0]
    logp_NU = logp_M.new_zeros(real_NU.shape).index_put(real_NU.nonzero(as_tuple=True), logp_M)
    return logp_NU * batch.weights_NU


def _size(model: Any) -> int:
    size: int = model.vocab_size
    return size
