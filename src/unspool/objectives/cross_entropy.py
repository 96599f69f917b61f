"""Maximum likelihood with teacher forcing: every target is predicted from the true ones before it.

    L = − Σ_j [ (1 − s)·log p(y_j | y_{<j}, x) + s/V · Σ_v log p(v | y_{<j}, x) ]

Label smoothing s: Szegedy et al. 2016, §7 (papers.bib: szegedy2016rethinking). The sum is over all targets
that count; the trainer divides it by their number once the batches of an update have been added up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from unspool.data.batch import Batch
from unspool.interfaces import Clock, Loss, Objective, Trainable
from unspool.objectives.masked import refuse_hidden_places


@dataclass(frozen=True)
class CrossEntropy(Objective):
    """−log p of the targets, smoothed towards the uniform distribution."""

    smoothing: float = 0.0
    """The share s of probability that is spread over the whole vocabulary."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.smoothing < 1.0:
            raise ValueError(f"smoothing={self.smoothing} must be at least 0 and below 1")

    def check(self, model: Trainable) -> None:
        """Refuse a model that would see what it is to say."""
        refuse_hidden_places(model, self)

    def __call__(self, model: Trainable, batch: Batch, clock: Clock) -> Loss:  # noqa: ARG002
        """The sum over the batch; stats has "nll" without smoothing, and of labels how many are "right"."""
        hidden_MD = model.hidden_for(batch).flatten(0, 1)
        targets_M, weights_M = batch.targets_NU.flatten(), batch.weights_NU.flatten()
        # Padding has weight 0, and the head leaves it out before it costs anything.
        total, nll = model.head.loss(hidden_MD, targets_M, weights_M, self.smoothing)
        stats = {"nll": float(nll)}
        if model.labels is not None:  # so few of them that to look at all costs nothing
            stats["right"] = float(weights_M[_chosen(model, hidden_MD) == targets_M].sum())
        return Loss(total, batch.weight, stats)


@torch.no_grad()
def _chosen(model: Trainable, hidden_MD: Tensor) -> Tensor:
    """(M): the most probable label of each."""
    return model.head(hidden_MD).argmax(-1)


# log p of chosen tokens, with gradients, without ever holding all (M, V) of them.
#
#     log p(token | hidden) = head(hidden)[token]
#
# Rows are taken some at a time, and the head is asked again when gradients are wanted (Chen et al. 2016,
# papers.bib: chen2016training): memory is that of one piece, however many rows and however large a
# vocabulary. Shapes: M places, C tokens chosen at each.


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
