"""The softmax bottleneck, measured: the rank of a model's log-probabilities over many contexts.

    A′ = HWᵀ + 1bᵀ − (log Z)1ᵀ,   rank A′ ≤ D + 1, or D + 2 with a bias b
    min over rank A′ ≤ r of ‖A − A′‖_F = √Σ_{k>r} σ_k(A)²          (Eckart & Young 1936)
    log p*(y | c) − log p̂(y | c) ≤ δ = −min A′,                    log V for a uniform prediction
    p̂(y | c) − p*(y | c) ≤ τ = 1 − e^(−δ)                          so that p̂ > τ is never impossible

Yang et al. 2018, §2.2 (papers.bib: yang2018breaking); Eckart & Young 1936 (papers.bib:
eckart1936approximation); Finlayson et al. 2024, §3 (papers.bib: finlayson2024closing). Underestimation is
bounded, overestimation is not: where p* = 0, any p̂ > 0 is infinitely too much in logarithms. As a
difference of probabilities it is.

The rank is numerical: singular values that rounding alone could cause do not count. Errors of size ε in
every entry make none larger than about ε·(√C + √V).

Symbols: C contexts, H their hidden vectors, Z what normalises each, A the true log-probabilities,
A′ `logp_CV`, D `width`. Where W is itself a product of two narrower matrices, their width E stands for D.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

import torch
from torch import Tensor

from unspool.decode.arguments import as_matrix, as_whole
from unspool.decode.combine.lockstep import check_model
from unspool.decode.generate import generate
from unspool.decode.search import Sample
from unspool.evaluate.teacher_forcing import Window, forced, paired, read
from unspool.interfaces import StepModel, TokenizerLike

SPARE = 64
"""Contexts more than the rank could explain, where its limit is known."""
ROUNDINGS = 8.0
"""How many times the last digit of an entry may be wrong, after a product of long vectors."""
ROW = 64
"""Places of a row of the model's own text: rows are said all at once, which is quicker than one long text."""
SOURCE = 8
"""The most words of a random source."""
ROWS = 32
"""Random sources that are answered at once."""
TRIES = 8
"""How often rows are drawn, where they end before there are tokens enough."""


@dataclass(frozen=True)
class Bottleneck:
    """What the log-probabilities of a model can and cannot express."""

    contexts: int
    distinct: int
    """How many of the contexts say different things: repeated ones cannot raise the rank."""
    vocab_size: int
    width: int | None
    """D, where the model has an output matrix."""
    limit: int | None
    """What the rank cannot exceed with one output matrix: D + 1, and one more with a bias."""
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
    def limit_formula(self) -> str:
        """The limit with what it is made of: "D + 1 = 577"; the number alone where D has no part in it."""
        if self.limit is None:
            return "any rank"
        beyond = 0 if self.width is None else self.limit - self.width
        return f"D + {beyond} = {self.limit:,}" if beyond > 0 else f"{self.limit:,}"

    @property
    def conclusive(self) -> bool:
        """Whether there were different contexts and words enough for the rank to exceed the limit.

        Where there is no limit: whether more contexts would not have given a larger one.
        """
        if self.limit is None:
            return self.rank < self.distinct or self.rank == self.vocab_size
        return self.limit < min(self.distinct, self.vocab_size)

    @property
    def tau(self) -> float:
        """No probability is overestimated by more: 1 − e^(−δ). A threshold there keeps nothing impossible."""
        return -math.expm1(-self.delta)

    @property
    def uniform_delta(self) -> float:
        """The same for a model that finds all words equally probable: log V."""
        return math.log(self.vocab_size)


def bottleneck(
    model: StepModel,
    texts: Sequence[str | Sequence[int]],
    contexts: int | None = None,
    *,
    sources: Sequence[str | Sequence[int]] | None = None,
    context: int | None = None,
) -> Bottleneck:
    """Measure a model on the first `contexts` places of some texts (None: as `fitting_contexts` says).

    An encoder–decoder needs `sources`, one for each text: the texts are then its targets.
    """
    return measure(model, forced(model, texts, sources, context=context), contexts)


def measure(model: StepModel, parts: Sequence[Window], contexts: int | None = None) -> Bottleneck:
    """The same on windows, which may be sources and targets (`paired`)."""
    matrix = model.output_matrix
    advice = "It is how many places of the texts are looked at."
    count = as_whole(
        "contexts", fitting_contexts(model) if contexts is None else contexts, at_least=1, advice=advice
    )
    return spectrum(log_probabilities(model, parts, count), matrix, rank_limit(model))


def log_probabilities(model: StepModel, parts: Sequence[Window], contexts: int) -> Tensor:
    """(C, V): what a model says at the first `contexts` places, in the same order whatever the model is."""
    return torch.cat([seen.logp_MV.cpu() for seen in read(model, first_places(parts, contexts), batch=1)])


def first_places(parts: Sequence[Window], places: int) -> list[Window]:
    """The windows of the first places, the last one cut; `read` itself would begin with the longest."""
    found = []
    for part in parts:
        if places <= 0:
            break
        found.append(replace(part, tokens=part.tokens[: part.first + places]))
        places -= len(part.tokens) - part.first
    return found


def fitting_contexts(model: StepModel) -> int:
    """Enough to see a rank above the limit, if there were one: 64 more; 512 where there is no limit."""
    limit = rank_limit(model)
    return 512 if limit is None else limit + SPARE


def rank_limit(model: StepModel) -> int | None:
    """What the rank of a model's log-probabilities cannot exceed; None without a single output matrix."""
    check_model(model)
    return model.rank_limit


def spectrum(logp_CV: Tensor, matrix_VD: Tensor | None = None, limit: int | None = None) -> Bottleneck:
    """The same, from log-probabilities that are at hand.

    A matrix does not tell whether there is a bias: without a `limit` it is D + 2, which holds for both.
    `rank_limit` knows a model's own.
    """
    as_matrix("log p̂", logp_CV, "(contexts, vocabulary)")
    if not logp_CV.is_floating_point():
        raise TypeError(f"log p̂ holds {logp_CV.dtype}, but must hold log-probabilities.")
    if matrix_VD is not None:
        as_matrix("the output matrix", matrix_VD, "(vocabulary, width)")
        if not bool(matrix_VD.isfinite().all()):
            raise ValueError("the output matrix holds NaN or infinite entries: it has no singular values")
    if limit is not None:
        limit = as_whole("limit", limit, at_least=0, advice="It is what the rank cannot exceed.")
    if not bool(logp_CV.isfinite().all()):
        raise ValueError(
            "some log-probability is not finite: measure the model itself, before any truncation"
        )
    # A′ᵀ = QR, and Q only turns: R has the singular values and distances of A′, in C rows, not V.
    triangle_KC = torch.linalg.qr(logp_CV.double().T, mode="r").R
    singular_K = torch.linalg.svdvals(triangle_KC)
    error = ROUNDINGS * torch.finfo(logp_CV.dtype).eps * float(logp_CV.abs().max())
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
    """How many rows are farther than `near` from every row before them."""
    distance_CC = torch.cdist(rows_CK, rows_CK, compute_mode="donot_use_mm_for_euclid_dist")
    repeated_C = (distance_CC <= near).tril(diagonal=-1).any(dim=1)
    return int((~repeated_C).sum())


def smoothed(true_CV: Tensor, share: float) -> Tensor:
    """log((1 − s)·p* + s/V) of true probabilities p*: a share s for all words alike makes every one possible.

    Where p* = 0 the truth is −∞, and every finite prediction is infinitely wrong.
    """
    if not 0.0 < share < 1.0:
        raise ValueError(f"share is {share}; it must be above 0, or zeros stay zeros, and below 1")
    logp_CV: Tensor = ((1.0 - share) * true_CV.double() + share / true_CV.shape[1]).log()
    return logp_CV


def own_text(model: StepModel, tokens: int, seed: int = 0) -> list[list[int]]:
    """Text that the model says itself, sampled from its own distribution, with so many places to measure.

    It is without the token that every row began with: its place would be the same in all of them.
    """
    check_model(model)
    tokens = as_whole("tokens", tokens, at_least=1, advice="It is how many places to measure there will be.")
    seed = as_whole("seed", seed, at_least=0, advice="The same seed gives the same text.")
    length = 1 + ROW if model.context is None else max(2, min(1 + ROW, model.context - 1))
    first, rows, drawn, found = _first(model.tokenizer), list[list[int]](), 0, 0
    for _ in range(TRIES):
        # As many rows as are missing if they are as long as those so far; at first, if none ends early.
        share = found / drawn if found else length - 1
        count, own = math.ceil((tokens - found) / share), Random(f"{seed} {drawn}").getrandbits(60)
        said = generate(model, [[first]] * count, Sample(), max_new_tokens=length, seed=own)
        rows += [list(out.tokens) for out in said if len(out.tokens) > 1]
        drawn, found = drawn + count, sum(len(row) - 1 for row in rows)
        if found >= tokens:
            return rows
    if not rows:
        raise ValueError("the model says no two words before its end: give a text to measure it on")
    return rows


def own_pairs(model: StepModel, tokens: int, seed: int = 0) -> list[Window]:
    """What an encoder–decoder answers to sources of 1 to 8 random words, with so many places to measure.

    No such source means anything: it is for a model whose own pairs are not at hand.
    """
    dice, found = Random(seed), list[Window]()
    while sum(len(it.tokens) - it.first for it in found) < tokens:
        sources = [_random_words(model, dice) for _ in range(ROWS)]
        room = ROW if model.context is None else min(ROW, model.context)
        own = Random(f"{seed} {len(found)}").getrandbits(60)
        said = generate(model, sources, Sample(), max_new_tokens=room, seed=own)
        found += paired(model, [(it, out.tokens) for it, out in zip(sources, said, strict=True)])
    return found


def _random_words(model: StepModel, dice: Random) -> list[int]:
    most = SOURCE if model.context is None else max(1, min(SOURCE, model.context - 1))
    return [dice.randrange(model.vocab_size) for _ in range(dice.randint(1, most))]


def _first(text: TokenizerLike | None) -> int:
    """What a text begins with: BOS, or the end of another."""
    if text is None:
        return 0
    return min(text.eos_ids, default=0) if text.bos_id is None else text.bos_id


def least_error(true_CV: Tensor, rank: int) -> float:
    """‖A − A′‖_F that no A′ of this rank can go below: the tail of the true matrix's singular values."""
    as_matrix("the true log-probabilities", true_CV, "(contexts, vocabulary)")
    rank = as_whole("rank", rank, at_least=0, advice="It is what the prediction's rank may be.")
    if not bool(true_CV.isfinite().all()):
        raise ValueError(
            "the true log-probabilities hold −∞, which no finite prediction comes near: smooth the language"
        )
    return float(torch.linalg.svdvals(true_CV.double())[rank:].square().sum().sqrt())
