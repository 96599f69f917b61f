"""Cross-entropy with teacher forcing and label smoothing.

    L = − Σ_j [ (1 − s)·log p(y_j | y_{<j}, x) + s/V · Σ_v log p(v | y_{<j}, x) ]

Label smoothing s: Szegedy et al. 2016, §7 (papers.bib: szegedy2016rethinking). The sum is over all targets
with nonzero weight; the trainer divides it by their number over all batches of an update.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from unspool.arguments import Checked, number
from unspool.data.batch import Batch
from unspool.interfaces import Clock, Loss, Objective, Trainable
from unspool.objectives.masked import check_not_masked_model


@dataclass(frozen=True)
class CrossEntropy(Checked, Objective):
    """−log p of the targets, with label smoothing."""

    smoothing: float = number(0.0, at_least=0, below=1)
    """The share s of probability spread over the whole vocabulary."""

    def check(self, model: Trainable) -> None:
        check_not_masked_model(model, self)

    def __call__(self, model: Trainable, batch: Batch, clock: Clock) -> Loss:  # noqa: ARG002
        """The sum over the batch; stats has "nll" without smoothing and, for labels, the number "right"."""
        hidden_MD = model.hidden_for(batch).flatten(0, 1)
        targets_M, weights_M = batch.targets_NU.flatten(), batch.weights_NU.flatten()
        # The head skips padding, which has weight 0.
        total, nll = model.head.loss(hidden_MD, targets_M, weights_M, self.smoothing)
        stats = {"nll": float(nll)}
        if model.labels is not None:  # few labels, so this is cheap
            with torch.no_grad():
                found_M = model.head(hidden_MD).argmax(-1)
            stats["right"] = float(weights_M[found_M == targets_M].sum())
        return Loss(total, batch.weight, stats)


MAX_SCORES = 1 << 22
"""Log-probabilities held in memory at once."""


def gather_logp(head: Any, hidden_MD: Tensor, tokens_MC: Tensor, vocab_size: int) -> Tensor:
    """(M, C): log p of C tokens at each of M positions, with gradients, without holding all (M, V).

        log p(token | hidden) = head(hidden)[token]

    Computed in chunks that are recomputed for the gradient (Chen et al. 2016, papers.bib:
    chen2016training), so memory is that of one chunk.
    """
    rows = max(1, MAX_SCORES // vocab_size)
    if len(hidden_MD) <= rows:
        return _logp(head, hidden_MD, tokens_MC)
    starts = range(0, len(hidden_MD), rows)
    pieces = [(hidden_MD[at : at + rows], tokens_MC[at : at + rows]) for at in starts]
    found = [
        checkpoint(_logp, head, *piece, use_reentrant=False, preserve_rng_state=False)
        if torch.is_grad_enabled()
        else _logp(head, *piece)
        for piece in pieces
    ]
    return torch.cat(found)


def _logp(head: Any, hidden_MD: Tensor, tokens_MC: Tensor) -> Tensor:
    return head(hidden_MD).gather(1, tokens_MC)


def target_logp(model: Trainable, batch: Batch) -> Tensor:
    """(N, U): log p of every target times its weight, 0 on padding."""
    hidden_NUD, real_NU = model.hidden_for(batch), batch.weights_NU != 0
    targets_M1 = batch.targets_NU[real_NU][:, None]
    logp_M = gather_logp(model.head, hidden_NUD[real_NU], targets_M1, model.vocab_size)[:, 0]
    logp_NU = logp_M.new_zeros(real_NU.shape).index_put(real_NU.nonzero(as_tuple=True), logp_M)
    return logp_NU * batch.weights_NU
