"""The softmax bottleneck, measured: the rank of a model's log-probabilities over many contexts.

    A′ = log softmax(HWᵀ),   rank A′ ≤ D + 1
    min over rank A′ ≤ r of ‖A − A′‖_F = √Σ_{k>r} σ_k(A)²          (Eckart & Young 1936)
    log p*(y | c) − log p̂(y | c) ≤ −min A′,                        log V for a uniform prediction

Yang et al. 2018, §2.2 (papers.bib: yang2018breaking); Eckart & Young 1936 (papers.bib:
eckart1936approximation); Finlayson et al. 2024, §3 (papers.bib: finlayson2024closing). Underestimation is
bounded, overestimation is not: where p* = 0, any p̂ > 0 is infinitely too much in logarithms.

The rank is numerical: singular values that rounding alone could cause do not count. Errors of size ε in
every entry make none larger than about ε·(√C + √V).

Symbols: C contexts, H their hidden vectors, A the true log-probabilities, A′ `logp_CV`, D `width`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from unspool.evaluate.teacher_forcing import encode, fitting, read, windows
from unspool.protocols import StepModel

SPARE = 64
"""Contexts more than the rank could explain, where the width of the head is known."""
ROUNDINGS = 8.0
"""How many times the last digit of an entry may be wrong, after a product of long vectors."""


@dataclass(frozen=True)
class Bottleneck:
    """What the log-probabilities of a model can and cannot express."""

    contexts: int
    vocab_size: int
    width: int | None
    """D, where the model has an output matrix."""
    rank: int
    """Of the log-probabilities, numerically."""
    smallest: float
    """Singular values below this do not count."""
    singular_values: tuple[float, ...]
    """Of the log-probabilities, largest first."""
    weight_singular_values: tuple[float, ...]
    """Of the output matrix, largest first; empty where there is none."""
    delta: float
    """No true log-probability is underestimated by more: −min A′."""

    @property
    def limit(self) -> int | None:
        """D + 1: what the rank cannot exceed with one output matrix."""
        return None if self.width is None else self.width + 1

    @property
    def conclusive(self) -> bool:
        """Whether there were contexts and words enough for the rank to exceed the limit."""
        most = min(self.contexts, self.vocab_size)
        return self.rank < most if self.limit is None else self.limit < most

    @property
    def uniform_delta(self) -> float:
        """The same for a model that finds all words equally probable: log V."""
        return math.log(self.vocab_size)


def bottleneck(
    model: StepModel,
    texts: Sequence[str | Sequence[int]],
    contexts: int | None = None,
    *,
    context: int | None = None,
) -> Bottleneck:
    """Measure a model on the first `contexts` places of some texts (None: D + 65, or 512 without a D)."""
    matrix: Tensor | None = getattr(model, "output_matrix", None)
    if contexts is None:
        contexts = 512 if matrix is None else matrix.shape[1] + 1 + SPARE
    found: list[Tensor] = []
    missing = contexts
    for seen in read(model, windows(encode(model, texts), fitting(model, context)), batch=1):
        found.append(seen.logp_MV[:missing].cpu())
        missing -= len(found[-1])
        if missing <= 0:
            break
    return spectrum(torch.cat(found), matrix)


def spectrum(logp_CV: Tensor, matrix_VD: Tensor | None = None) -> Bottleneck:
    """The same, from log-probabilities that are at hand."""
    if not bool(logp_CV.isfinite().all()):
        raise ValueError(
            "some log-probability is not finite: measure the model itself, before any truncation"
        )
    singular_K = torch.linalg.svdvals(logp_CV.double())
    error = ROUNDINGS * torch.finfo(logp_CV.dtype).eps * float(logp_CV.abs().max())
    smallest = error * (len(logp_CV) ** 0.5 + logp_CV.shape[1] ** 0.5)
    weights = () if matrix_VD is None else torch.linalg.svdvals(matrix_VD.detach().double()).tolist()
    return Bottleneck(
        contexts=len(logp_CV),
        vocab_size=logp_CV.shape[1],
        width=None if matrix_VD is None else matrix_VD.shape[1],
        rank=int((singular_K > smallest).sum()),
        smallest=smallest,
        singular_values=tuple(singular_K.tolist()),
        weight_singular_values=tuple(weights),
        delta=float(-logp_CV.min()),
    )


def least_error(true_CV: Tensor, rank: int) -> float:
    """‖A − A′‖_F that no A′ of this rank can go below: the tail of the true matrix's singular values."""
    if not bool(true_CV.isfinite().all()):
        raise ValueError(
            "the true log-probabilities hold −∞, which no finite prediction comes near: smooth the language"
        )
    return float(torch.linalg.svdvals(true_CV.double())[rank:].square().sum().sqrt())
