"""Unlikelihood: tokens that have been said already are made improbable, unless they are right again.

    L = −Σ_t Σ_{c ∈ C_t} log( 1 − p(c | y_{<t}) ),   C_t = { y_1 … y_{t−1} } ∖ { y_t }

Welleck et al. 2020, eq. 3–5 (papers.bib: welleck2020unlikelihood), which has it beside the likelihood with
weight α = 1: −log p(y_t) is the main objective. BOS, which nobody says, is no candidate: neither the first
token of a row nor one between two texts of a packed block.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unspool.data.batch import Batch
from unspool.objectives.chosen_logp import chosen_logp
from unspool.objectives.hidden_places import refuse_hidden_places
from unspool.protocols import Clock, Loss, Objective, Trainable

CLOSEST = 1e-5
"""−log p is held above this, so that log(1 − p) stays finite where p is 1."""


@dataclass(frozen=True)
class Unlikelihood(Objective):
    """−log(1 − p) of every token that was said before, at each target."""

    def check(self, model: Trainable) -> None:
        """Refuse a model that says no texts."""
        refuse_hidden_places(model, self)
        if model.labels is not None:
            raise ValueError("unlikelihood is of tokens that repeat, and labels are none: leave it out")

    def __call__(self, model: Trainable, batch: Batch, clock: Clock) -> Loss:  # noqa: ARG002
        """The sum over all targets that count."""
        hidden_NTD, real_NT = model.hidden_for(batch), batch.weights_NU != 0
        read_NT = batch.inputs_NT
        read_MT = read_NT[:, None].expand(-1, read_NT.shape[1], -1)[real_NT]
        size: int = model.vocab_size  # type: ignore[attr-defined]
        logp_MT = chosen_logp(model.head, hidden_NTD[real_NT], read_MT, size)
        bos = None if model.text is None else model.text.bos_id  # type: ignore[attr-defined]
        counts_NTT = candidates(read_NT, batch.targets_NU, bos)
        cost_MT = unlikely(logp_MT).masked_fill(~counts_NTT[real_NT], 0.0)
        total = (cost_MT.sum(dim=1) * batch.weights_NU[real_NT]).sum()
        return Loss(total, batch.weight, {"unlikelihood": float(total.detach())})


def unlikely(logp: Tensor) -> Tensor:
    """−log(1 − p), from log p."""
    return -torch.log(-torch.expm1(logp.clamp(max=-CLOSEST)))


def candidates(read_NT: Tensor, targets_NT: Tensor, bos: int | None = None) -> Tensor:
    """(N, T, T): at target t, which of the tokens said so far count: each once, and not the right one."""
    T = read_NT.shape[1]
    said_NT = torch.arange(T, device=read_NT.device).expand_as(read_NT) > 0
    if bos is not None:
        said_NT = said_NT & (read_NT != bos)
    same_NTT = (read_NT[:, :, None] == read_NT[:, None]) & said_NT[:, None]
    first_NT = said_NT & ~same_NTT.tril(-1).any(dim=2)
    so_far_TT = torch.ones(T, T, dtype=torch.bool, device=read_NT.device).tril()
    return so_far_TT & first_NT[:, None] & (read_NT[:, None] != targets_NT[:, :, None])
