"""KerBS's kernel: an inner product whose dependence on the angle is bent by one number for each sense.

    K_θ(h, w) = |h|·|w|·(a·exp(−θ·cos(h, w)) − a),   a = −θ / (2·(exp(−θ) + θ − 1))

Miao et al. 2019, §3 (papers.bib: miao2019kernelized). θ → 0 gives the inner product. A larger θ
is flatter where the angle is small, for a wide cluster of contexts; between cos = 0 and cos = 1 the mean
of K/(|h|·|w|) is ½ for every θ.

Both factors lose all digits near θ = 0 as they are printed. Here, with x = −θ·cos,

    K_θ = |h|·|w|·(−κ/θ)·E,           E = exp(x) − 1,          κ(θ) = θ² / (2·(exp(−θ) + θ − 1))
    ∂K/∂cos = |h|·|w|·κ·(E + 1)
    ∂K/∂θ = −|h|·|w|·(κ′/θ·E + κ/θ²·F),   F = x·exp(x) − E = x²·(1/2 + x/3 + x²/8 + x³/30 + …)

κ is smooth with κ(0) = 1 and has a series; so has F; E is what expm1 computes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor

SMALLEST = 1e-10
"""|θ| is taken to be at least so large: the kernel differs from θ = 0 by less than single precision sees."""
LARGEST = 40.0
"""… and at most so large, that no exponential overflows."""
BEND = tuple((n - 1) / math.factorial(n) for n in range(2, 11))
"""F = x²·Σ_k BEND[k]·x^k."""


def kernel(hidden: Tensor, senses_SD: Tensor, theta_S: Tensor) -> Tensor:
    """(…, D), (S, D), (S,) → (…, S): K_θ of every hidden vector with every sense; never in half precision."""
    full = torch.promote_types(senses_SD.dtype, torch.float32)
    hidden, senses_SD, theta_S = hidden.to(full), senses_SD.to(full), theta_S.to(full)
    tiny = shortest(hidden)
    length, length_S1 = lengths(hidden), lengths(senses_SD)
    with torch.autocast(hidden.device.type, enabled=False):
        cos = (hidden / length.clamp_min(tiny)) @ (senses_SD / length_S1.clamp_min(tiny)).t()
    scores: Tensor = length * length_S1[:, 0] * profile(cos, theta_S)
    return scores


def lengths(vectors: Tensor) -> Tensor:
    """(…, D) → (…, 1). Entries are made small before they are squared: the squares of large ones overflow."""
    largest = vectors.detach().abs().amax(-1, keepdim=True).clamp_min(torch.finfo(vectors.dtype).tiny)
    found: Tensor = (vectors / largest).norm(dim=-1, keepdim=True) * largest
    return found


def shortest(vectors: Tensor) -> float:
    """A shorter vector may have a length that is rounded to 0, and no direction."""
    return float(torch.finfo(vectors.dtype).tiny ** 0.5)


def profile(cos: Tensor, theta: Tensor) -> Tensor:
    """K_θ / (|h|·|w|) as a function of the angle, with exact gradients at every θ. Shapes broadcast."""
    value: Tensor = _Profile.apply(cos, theta)  # type: ignore[no-untyped-call]
    return value


def bounded(theta: Tensor) -> Tensor:
    """θ, neither too close to 0 to divide by nor too large to exponentiate."""
    theta = theta.clamp(-LARGEST, LARGEST)
    return torch.where(theta.abs() < SMALLEST, SMALLEST, theta)


def scale(theta: Tensor) -> tuple[Tensor, Tensor]:
    """κ(θ) and κ′(θ) = −q′/q², from q(θ) = 1/κ(θ) = Σ_k 2·(−θ)^k / (k + 2)!."""
    given, theta = theta.dtype, theta.double()  # one number a sense; in single precision digits would be lost
    near = theta.clamp(-1.0, 1.0)
    q, slope = torch.zeros_like(near), torch.zeros_like(near)
    for k in reversed(range(18)):
        slope = q - slope * near  # Horner's rule in −θ for q and, by the product rule, for dq/d(−θ)
        q = 2.0 / math.factorial(k + 2) - q * near
    far = theta.abs() > 1.0
    safe = torch.where(far, theta, 1.0)
    q = torch.where(far, 2.0 * (torch.expm1(-safe) + safe) / safe**2, q)
    slope = torch.where(far, -2.0 * (torch.expm1(-safe) / safe + q) / safe, -slope)
    return (1.0 / q).to(given), (-slope / q**2).to(given)


def bend(x: Tensor, e: Tensor) -> Tensor:
    """F(x) = x·exp(x) − E to full precision, given E = exp(x) − 1."""
    series = torch.full_like(x, BEND[-1])
    for coefficient in reversed(BEND[:-1]):
        series = series * x + coefficient
    return torch.where(x.abs() < 0.3, x**2 * series, x * e + (x - e))


class _Profile(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, cos: Tensor, theta: Tensor) -> Tensor:
        ctx.save_for_backward(cos, theta)
        theta = bounded(theta)
        kappa, _ = scale(theta)
        return torch.expm1(-theta * cos) * (-kappa / theta)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, Tensor | None]:
        cos, given = ctx.saved_tensors
        theta = bounded(given)
        grad_cos = grad_theta = None
        if ctx.needs_input_grad[0]:
            kappa, _ = scale(theta)
            grad_cos = (outer[0] * kappa * torch.exp(-theta * cos)).sum_to_size(cos.shape)
        if ctx.needs_input_grad[1]:
            # In double precision: it is a difference, and crosses 0 between cos = 0 and 1 at every θ.
            theta = theta.double()
            kappa, slope = scale(theta)
            x = -theta * cos.double()
            e = torch.expm1(x)
            by_theta = -(slope / theta) * e - (kappa / theta**2) * bend(x, e)
            inside = given.abs() <= LARGEST
            grad_theta = (outer[0] * by_theta).sum_to_size(given.shape).to(given.dtype) * inside
        return grad_cos, grad_theta


@dataclass(frozen=True)
class SenseTable:
    """The senses of every word.

    Which senses belong to which word, and sums over the senses of every word.

        log P(y = i) = logsumexp_j log P(s = ⟨i, j⟩)

    Miao et al. 2019, §3 (papers.bib: miao2019kernelized): the Bayesian composition of a word's senses. Senses
    stand in any order. Words have different numbers of them, so that the sum goes by rank: all first senses
    at once, then the second senses of those words that have one, and so on.

    Where many such sums are taken, the senses may be put in order first: the first senses of all words, those
    of words with more senses before others, then the second senses of those that have one, in the same order,
    and so on. Then the senses of each rank lie side by side, and the sums need slices alone.

    Shapes: V words, S senses, J the most senses that a word has, W the words that have several.
    """

    words_S: Tensor
    """The word of every sense."""
    senses_VJ: Tensor
    """The senses of every word; where a word has fewer than J, the last places repeat its first."""
    real_VJ: Tensor
    """Which of those places are senses."""
    further: tuple[tuple[Tensor, Tensor], ...]
    """For j = 1 … J − 1: the words that have a sense of that rank, and those senses."""
    plain: bool
    """Every word has one sense, in the order of the words."""
    order_S: Tensor
    """The senses, put in order."""
    places_S: Tensor
    """Where each sense stands in that order."""
    ranks: tuple[slice, ...]
    """The places of the senses of each rank."""

    @classmethod
    def of(cls, words_S: Tensor, vocab_size: int) -> SenseTable:
        """The table, from the word of every sense."""
        counts_V = torch.bincount(words_S, minlength=vocab_size)
        lacking = (counts_V[:vocab_size] == 0).nonzero()[:, 0].tolist()
        if lacking:
            raise ValueError(
                f"{len(lacking)} of {vocab_size} words have no sense, the first of them word {lacking[0]}: "
                "give every word at least one"
            )
        if len(counts_V) > vocab_size:
            raise ValueError(
                f"a sense belongs to word {len(counts_V) - 1}, but there are {vocab_size} words: "
                f"name words from 0 to {vocab_size - 1}"
            )
        most = int(counts_V.max())
        order_S = torch.argsort(words_S, stable=True)
        sorted_S = words_S[order_S]
        starts_V = counts_V.cumsum(0) - counts_V
        rank_S = torch.arange(len(words_S), device=words_S.device) - starts_V[sorted_S]
        senses_VJ = order_S[starts_V][:, None].repeat(1, most)
        senses_VJ[sorted_S, rank_S] = order_S
        real_VJ = torch.arange(most, device=words_S.device) < counts_V[:, None]
        having = [real_VJ[:, rank].nonzero()[:, 0] for rank in range(1, most)]
        further = tuple((words, senses_VJ[words, rank]) for rank, words in enumerate(having, start=1))
        plain = most == 1 and bool((order_S == torch.arange(vocab_size, device=words_S.device)).all())
        most_first_V = torch.argsort(counts_V, descending=True, stable=True)
        ordered_S = torch.cat(
            [senses_VJ[most_first_V[: int(real_V.sum())], rank] for rank, real_V in enumerate(real_VJ.t())]
        )
        ends = real_VJ.sum(0).cumsum(0).tolist()
        ranks = tuple(slice(*it) for it in zip([0, *ends[:-1]], ends, strict=True))
        return cls(words_S, senses_VJ, real_VJ, further, plain, ordered_S, torch.argsort(ordered_S), ranks)

    @property
    def several(self) -> int:
        """How many words have several senses."""
        return self.ranks[1].stop - self.ranks[1].start if len(self.ranks) > 1 else 0

    def blocks(self) -> Iterator[tuple[slice, slice]]:
        """Of the words that have several senses, by rank: the places of the senses, and the words."""
        for rank in self.ranks:
            words = min(rank.stop - rank.start, self.several)
            yield slice(rank.start, rank.start + words), slice(words)

    def folded(self, ordered_RS: Tensor, add: Callable[..., Tensor]) -> Tensor:
        """(R, S) → (R, W): sums over the senses of the words that have several."""
        sums_RW = ordered_RS[:, : self.several].clone()
        for senses, words in islice(self.blocks(), 1, None):
            add(sums_RW[:, words], ordered_RS[:, senses], out=sums_RW[:, words])
        return sums_RW

    def by_word(self, scores: Tensor) -> Tensor:
        """(…, S) → (…, V): logsumexp over the senses of every word."""
        if self.plain:
            return scores
        sums = scores.index_select(-1, self.senses_VJ[:, 0])
        for words, senses in self.further:
            more = torch.logaddexp(sums.index_select(-1, words), scores.index_select(-1, senses))
            sums = sums.index_copy(-1, words, more)
        return sums
