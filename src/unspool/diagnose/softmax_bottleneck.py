"""The softmax bottleneck: the rank of a model's log-probabilities over many contexts.

    A′ = HWᵀ + 1bᵀ − (log Z)1ᵀ,   rank A′ ≤ D + 1, or D + 2 with a bias b
    min over rank A′ ≤ r of ‖A − A′‖_F = √Σ_{k>r} σ_k(A)²          (Eckart & Young 1936)
    log p*(y | c) − log p̂(y | c) ≤ δ = −min A′,                    log V for a uniform prediction
    p̂(y | c) − p*(y | c) ≤ τ = 1 − e^(−δ)                          so tokens with p̂ > τ are possible

Yang et al. 2018, §2.2 (papers.bib: yang2018breaking); Eckart & Young 1936 (papers.bib:
eckart1936approximation); Finlayson et al. 2024, §3 (papers.bib: finlayson2024closing). In logarithms only
underestimation is bounded: if p* = 0, any p̂ > 0 is infinitely too large. As a difference of probabilities
overestimation is bounded as well.

The rank is numerical: singular values within rounding error do not count. Errors of size ε in every entry
cause singular values of at most about ε·(√C + √V).

Symbols: C contexts, H their hidden vectors, Z the normalisers, A the true log-probabilities, A′ `logp_CV`,
D `width`. If W is a product of two narrower matrices, their width E replaces D.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

import torch
from torch import Tensor

from unspool.arguments import as_int, as_matrix
from unspool.decode.generate import generate
from unspool.decode.lockstep import check_model
from unspool.decode.search import Sample
from unspool.evaluate.teacher_forcing import Window, forced, paired, read
from unspool.interfaces import StepModel, TokenizerLike

EXTRA_CONTEXTS = 64
"""Contexts beyond the rank limit."""
ROUNDING_FACTOR = 8.0
"""Rounding error of a product of long vectors, in units of the last digit."""
ROW_LENGTH = 64
"""Tokens per row of generated text; many short rows are faster than one long text."""
MAX_SOURCE_LENGTH = 8
BATCH = 32
MAX_DRAWS = 8


@dataclass(frozen=True)
class Bottleneck:
    """Rank and spectrum of the log-probabilities of a model."""

    contexts: int
    distinct: int
    """Contexts with distinct distributions; repeated ones cannot raise the rank."""
    vocab_size: int
    width: int | None
    """D, if the model has an output matrix."""
    limit: int | None
    """Rank limit of one output matrix: D + 1, or D + 2 with a bias."""
    rank: int
    smallest: float
    """Singular values below this are rounding error."""
    singular_values: tuple[float, ...]
    """Singular values of the log-probabilities, largest first."""
    weight_singular_values: tuple[float, ...]
    """Singular values of the output matrix, largest first; empty without one."""
    delta: float
    """−min A′: the bound of the underestimation of log-probabilities."""

    @property
    def limit_formula(self) -> str:
        """The limit with its formula, such as "D + 1 = 577"; the number alone if it does not depend on D."""
        if self.limit is None:
            return "any rank"
        beyond = 0 if self.width is None else self.limit - self.width
        return f"D + {beyond} = {self.limit:,}" if beyond > 0 else f"{self.limit:,}"

    @property
    def conclusive(self) -> bool:
        """Whether the contexts and words suffice for a rank above the limit.

        Without a limit: whether more contexts would not raise the rank.
        """
        if self.limit is None:
            return self.rank < self.distinct or self.rank == self.vocab_size
        return self.limit < min(self.distinct, self.vocab_size)

    @property
    def tau(self) -> float:
        """1 − e^(−δ): the bound of the overestimation, and a threshold that keeps only possible tokens."""
        return -math.expm1(-self.delta)

    @property
    def uniform_delta(self) -> float:
        """δ of a uniform distribution: log V."""
        return math.log(self.vocab_size)


def bottleneck(
    model: StepModel,
    texts: Sequence[str | Sequence[int]],
    contexts: int | None = None,
    *,
    sources: Sequence[str | Sequence[int]] | None = None,
) -> Bottleneck:
    """Measure a model at the first `contexts` positions of texts (default: `fitting_contexts`).

    An encoder–decoder needs `sources`, one per text; texts are its targets.
    """
    return measure(model, forced(model, texts, sources), contexts)


def measure(model: StepModel, parts: Sequence[Window], contexts: int | None = None) -> Bottleneck:
    """`bottleneck` on windows."""
    matrix = model.output_matrix
    advice = "It is the number of positions."
    count = as_int(
        "contexts", fitting_contexts(model) if contexts is None else contexts, at_least=1, advice=advice
    )
    return spectrum(log_probabilities(model, parts, count), matrix, rank_limit(model))


def log_probabilities(model: StepModel, parts: Sequence[Window], contexts: int) -> Tensor:
    """Return log-probabilities at the first `contexts` positions, in the order of the windows: (C, V)."""
    return torch.cat([seen.logp_MV.cpu() for seen in read(model, first_positions(parts, contexts), batch=1)])


def first_positions(parts: Sequence[Window], positions: int) -> list[Window]:
    """Cut windows to the first positions; `read` alone would start with the longest window."""
    windows = []
    for part in parts:
        if positions <= 0:
            break
        windows.append(replace(part, tokens=part.tokens[: part.first + positions]))
        positions -= len(part.tokens) - part.first
    return windows


def fitting_contexts(model: StepModel) -> int:
    """Return a number of contexts that can show a rank above the limit: 64 more; 512 without a limit."""
    limit = rank_limit(model)
    return 512 if limit is None else limit + EXTRA_CONTEXTS


def rank_limit(model: StepModel) -> int | None:
    """Return the rank limit of a model's log-probabilities; None without a single output matrix."""
    check_model(model)
    return model.rank_limit


def spectrum(logp_CV: Tensor, matrix_VD: Tensor | None = None, limit: int | None = None) -> Bottleneck:
    """Measure rank and spectrum of given log-probabilities.

    The default `limit` with a matrix is D + 2, which holds with and without a bias; `rank_limit` returns the
    limit of a model.
    """
    as_matrix("log p̂", logp_CV, "(contexts, vocabulary)")
    if not logp_CV.is_floating_point():
        raise TypeError(f"log p̂ holds {logp_CV.dtype}, but must hold log-probabilities")
    if matrix_VD is not None:
        as_matrix("the output matrix", matrix_VD, "(vocabulary, width)")
        if not bool(matrix_VD.isfinite().all()):
            raise ValueError("the output matrix contains NaN or infinite entries")
    if limit is not None:
        limit = as_int("limit", limit, at_least=0, advice="It is the rank limit.")
    if not bool(logp_CV.isfinite().all()):
        raise ValueError("log-probabilities must be finite: measure the model before any truncation")
    # A′ᵀ = QR with orthogonal Q, so R has the singular values and distances of A′, in C rows instead of V.
    triangle_KC = torch.linalg.qr(logp_CV.double().T, mode="r").R
    singular_K = torch.linalg.svdvals(triangle_KC)
    error = ROUNDING_FACTOR * torch.finfo(logp_CV.dtype).eps * float(logp_CV.abs().max())
    smallest = error * (len(logp_CV) ** 0.5 + logp_CV.shape[1] ** 0.5)
    width = None if matrix_VD is None else matrix_VD.shape[1]
    if limit is None and width is not None:
        limit = width + 2
    weights = () if matrix_VD is None else torch.linalg.svdvals(matrix_VD.detach().double()).tolist()
    return Bottleneck(
        contexts=len(logp_CV),
        distinct=_distinct(triangle_KC.T, 2 * error * logp_CV.shape[1] ** 0.5),
        vocab_size=logp_CV.shape[1],
        width=width,
        limit=limit,
        rank=int((singular_K > smallest).sum()),
        smallest=smallest,
        singular_values=tuple(singular_K.tolist()),
        weight_singular_values=tuple(weights),
        delta=float(-logp_CV.min()),
    )


def _distinct(rows_CK: Tensor, near: float) -> int:
    """Count the rows that are farther than `near` from every earlier row."""
    distance_CC = torch.cdist(rows_CK, rows_CK, compute_mode="donot_use_mm_for_euclid_dist")
    repeated_C = (distance_CC <= near).tril(diagonal=-1).any(dim=1)
    return int((~repeated_C).sum())


def smoothed(true_CV: Tensor, share: float) -> Tensor:
    """Return log((1 − s)·p* + s/V): the uniform share s makes the logarithm of p* = 0 finite."""
    if not 0.0 < share < 1.0:
        raise ValueError(f"share is {share}, but must be above 0 and below 1")
    logp_CV: Tensor = ((1.0 - share) * true_CV.double() + share / true_CV.shape[1]).log()
    return logp_CV


def own_text(model: StepModel, tokens: int, seed: int = 0) -> list[list[int]]:
    """Sample text from the model, with about `tokens` positions to measure.

    Rows are returned without their start token, whose context is the same in all of them.
    """
    check_model(model)
    tokens = as_int("tokens", tokens, at_least=1, advice="It is the number of positions.")
    seed = as_int("seed", seed, at_least=0, advice="The same seed gives the same text.")
    length = 1 + ROW_LENGTH if model.context is None else max(2, min(1 + ROW_LENGTH, model.context - 1))
    first, rows, drawn, windows = _start_token(model.tokenizer), list[list[int]](), 0, 0
    for _ in range(MAX_DRAWS):
        # Estimate the missing rows from the mean length so far; at first assume that no row ends early.
        share = windows / drawn if windows else length - 1
        count, own_seed = math.ceil((tokens - windows) / share), Random(f"{seed} {drawn}").getrandbits(60)
        outputs = generate(model, [[first]] * count, Sample(), max_new_tokens=length, seed=own_seed)
        rows += [list(out.tokens) for out in outputs if len(out.tokens) > 1]
        drawn, windows = drawn + count, sum(len(row) - 1 for row in rows)
        if windows >= tokens:
            return rows
    if not rows:
        raise ValueError("the model ends all its texts after one token: give a text to measure it on")
    return rows


def own_pairs(model: StepModel, tokens: int, seed: int = 0) -> list[Window]:
    """Sample answers of an encoder–decoder to sources of 1 to 8 random tokens, for models without pairs."""
    rng, windows = Random(seed), list[Window]()
    while sum(len(window.tokens) - window.first for window in windows) < tokens:
        longest = min(MAX_SOURCE_LENGTH, max(1, (model.context or MAX_SOURCE_LENGTH + 1) - 1))
        sources = [
            [rng.randrange(model.vocab_size) for _ in range(rng.randint(1, longest))] for _ in range(BATCH)
        ]
        max_tokens = ROW_LENGTH if model.context is None else min(ROW_LENGTH, model.context)
        own_seed = Random(f"{seed} {len(windows)}").getrandbits(60)
        outputs = generate(model, sources, Sample(), max_new_tokens=max_tokens, seed=own_seed)
        windows += paired(model, [(source, out.tokens) for source, out in zip(sources, outputs, strict=True)])
    return windows


def _start_token(tokenizer: TokenizerLike | None) -> int:
    """Return BOS, or EOS without BOS."""
    if tokenizer is None:
        return 0
    return min(tokenizer.eos_ids, default=0) if tokenizer.bos_id is None else tokenizer.bos_id


def least_error(true_CV: Tensor, rank: int) -> float:
    """Return the least ‖A − A′‖_F over A′ of this rank: the norm of the remaining singular values of A."""
    as_matrix("the true log-probabilities", true_CV, "(contexts, vocabulary)")
    rank = as_int("rank", rank, at_least=0, advice="It is the rank of the prediction.")
    if not bool(true_CV.isfinite().all()):
        raise ValueError("the true log-probabilities must be finite: smooth them first")
    return float(torch.linalg.svdvals(true_CV.double())[rank:].square().sum().sqrt())
