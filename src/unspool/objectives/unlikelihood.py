"""Unlikelihood training: lower the probability of repeated tokens, in the data or in rollouts.

    L = −Σ_t Σ_{c ∈ C_t} log( 1 − p(c | y_{<t}) ),   C_t = { y_1 … y_{t−1} } ∖ { y_t }

Welleck et al. 2020, eq. 3–5 (papers.bib: welleck2020unlikelihood), which adds it to the likelihood with
weight α = 1; here −log p(y_t) is the main objective. BOS is never a candidate, neither at the start of a
row nor between texts of a packed block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unspool.arguments import integer
from unspool.data.batch import Batch
from unspool.decode.search import Greedy
from unspool.interfaces import Clock, Loss, Objective, PreparedLoss, Trainable
from unspool.objectives.cross_entropy import gather_logp, target_logp
from unspool.objectives.masked import check_generates_text
from unspool.objectives.rollouts import RolloutObjective, empty_loss, make_prompts, rollout_batch, tensor_like

MIN_NLL = 1e-5
"""A lower bound on −log p, so that log(1 − p) is finite if p = 1."""


@dataclass(frozen=True)
class Unlikelihood(Objective):
    """−log(1 − p) of every earlier token, at each target."""

    def check(self, model: Trainable) -> None:
        check_generates_text(model, self)

    def __call__(self, model: Trainable, batch: Batch, clock: Clock) -> Loss:  # noqa: ARG002
        hidden_NTD, real_NT = model.hidden_for(batch), batch.weights_NU != 0
        read_NT = batch.inputs_NT
        read_MT = read_NT[:, None].expand(-1, read_NT.shape[1], -1)[real_NT]
        logp_MT = gather_logp(model.head, hidden_NTD[real_NT], read_MT, model.vocab_size)
        bos = None if model.tokenizer is None else model.tokenizer.bos_id
        counts_NTT = candidates(read_NT, batch.targets_NU, bos)
        cost_MT = unlikelihood(logp_MT).masked_fill(~counts_NTT[real_NT], 0.0)
        total = (cost_MT.sum(dim=1) * batch.weights_NU[real_NT]).sum()
        return Loss(total, batch.weight, {"unlikelihood": float(total.detach())})


def unlikelihood(logp: Tensor) -> Tensor:
    """−log(1 − p) from log p."""
    return -torch.log(-torch.expm1(logp.clamp(max=-MIN_NLL)))


def candidates(read_NT: Tensor, targets_NT: Tensor, bos: int | None = None) -> Tensor:
    """(N, T, T): the candidates at target t: each earlier token once, except the target."""
    T = read_NT.shape[1]
    is_candidate_NT = torch.arange(T, device=read_NT.device).expand_as(read_NT) > 0
    if bos is not None:
        is_candidate_NT = is_candidate_NT & (read_NT != bos)
    is_same_NTT = (read_NT[:, :, None] == read_NT[:, None]) & is_candidate_NT[:, None]
    is_first_NT = is_candidate_NT & ~is_same_NTT.tril(-1).any(dim=2)
    so_far_TT = torch.ones(T, T, dtype=torch.bool, device=read_NT.device).tril()
    return so_far_TT & is_first_NT[:, None] & (read_NT[:, None] != targets_NT[:, :, None])


@dataclass(frozen=True)
class SequenceUnlikelihood(RolloutObjective):
    """Sequence unlikelihood: lower the probability of repeated n-grams in greedy rollouts.

        L = −Σ_t [ y_t is in an n-gram of ŷ that occurred before ] · log( 1 − p(y_t | ŷ_{<t}) ),   ŷ greedy

    Welleck et al. 2020, eq. 7–8 (papers.bib: welleck2020unlikelihood), n = 4. An n-gram counts as repeated
    if it occurred anywhere before in the row, including the prompt; only generated tokens are penalised.
    """

    n: int = integer(4, at_least=1)
    """The length of the n-grams."""

    def prepare(self, model: Trainable, batch: Batch, clock: Clock) -> PreparedLoss:  # noqa: ARG002
        """The sum over all generated tokens; stats has the number of repeated ones."""
        prompts = make_prompts(model, batch, self.prompt)
        if not prompts:
            return empty_loss("repeated")
        rollouts = [group[0].tokens for group in self.generate(model, prompts, Greedy())]
        rollout_rows = rollout_batch(model, batch, prompts, rollouts)
        T = rollout_rows.targets_NU.shape[1]
        repeats = []
        for prompt, tokens in zip(prompts, rollouts, strict=True):
            before = () if model.is_encoder_decoder else prompt.prompt
            marked = mark_repeats((*before, *tokens), self.n)[len(before) :]
            skipped = max(0, len(before) - 1)
            repeats.append([0.0] * skipped + marked + [0.0] * (T - skipped - len(marked)))

        def compute(reader: Any) -> Loss:
            logp_NT = target_logp(reader, rollout_rows)
            marks_NT = tensor_like([mark for row in repeats for mark in row], logp_NT).view_as(logp_NT)
            total = (marks_NT * unlikelihood(logp_NT)).sum()
            return Loss(total, rollout_rows.weight, {"repeated": float(marks_NT.sum())})

        return PreparedLoss(rollout_rows.weight, compute)


def mark_repeats(tokens: Sequence[int], n: int) -> list[float]:
    """1 for each token in an n-gram that occurred before, else 0."""
    repeats, seen = [0.0] * len(tokens), set[tuple[int, ...]]()
    for end in range(n, len(tokens) + 1):
        gram = tuple(tokens[end - n : end])
        if gram in seen:
            repeats[end - n : end] = [1.0] * n
        seen.add(gram)
    return repeats
