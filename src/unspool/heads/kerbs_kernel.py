"""The KerBS kernel: an inner product with a nonlinear dependence on the angle, and the table of senses.

    K_θ(h, w) = |h|·|w|·(a·exp(−θ·cos(h, w)) − a),   a = −θ / (2·(exp(−θ) + θ − 1))

Miao et al. 2019, §3 (papers.bib: miao2019kernelized). θ → 0 gives the inner product. A larger θ is flatter
at small angles, for a wide cluster of contexts; the mean of K/(|h|·|w|) between cos = 0 and cos = 1 is ½
for every θ.

The printed formula loses all digits near θ = 0. With x = −θ·cos, the code computes

    K_θ = |h|·|w|·(−κ/θ)·E,           E = exp(x) − 1,          κ(θ) = θ² / (2·(exp(−θ) + θ − 1))
    ∂K/∂cos = |h|·|w|·κ·(E + 1)
    ∂K/∂θ = −|h|·|w|·(κ′/θ·E + κ/θ²·F),   F = x·exp(x) − E = x²·(1/2 + x/3 + x²/8 + x³/30 + …)

κ is smooth with κ(0) = 1 and has a series, as has F; E is expm1(x).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any

import torch
from torch import Tensor

MIN_THETA = 1e-10
"""|θ| is clamped from below; the difference of the kernel to θ = 0 is below float32 precision."""
MAX_THETA = 40.0
"""|θ| is clamped from above so that exponentials do not overflow."""
F_SERIES = tuple((n - 1) / math.factorial(n) for n in range(2, 11))
"""F = x²·Σ_k BEND[k]·x^k."""


def kernel(hidden: Tensor, senses_SD: Tensor, theta_S: Tensor) -> Tensor:
    """(…, D), (S, D), (S,) → (…, S): K_θ of every hidden vector with every sense, in float32 or better."""
    full = torch.promote_types(senses_SD.dtype, torch.float32)
    hidden, senses_SD, theta_S = hidden.to(full), senses_SD.to(full), theta_S.to(full)
    tiny = min_norm(hidden)
    length, length_S1 = norms(hidden), norms(senses_SD)
    with torch.autocast(hidden.device.type, enabled=False):
        cos = (hidden / length.clamp_min(tiny)) @ (senses_SD / length_S1.clamp_min(tiny)).t()
    return length * length_S1[:, 0] * kernel_profile(cos, theta_S)


def norms(vectors: Tensor) -> Tensor:
    """(…, D) → (…, 1): Euclidean norms; entries are scaled first, because squares of large ones overflow."""
    largest = vectors.detach().abs().amax(-1, keepdim=True).clamp_min(torch.finfo(vectors.dtype).tiny)
    return (vectors / largest).norm(dim=-1, keepdim=True) * largest


def min_norm(vectors: Tensor) -> float:
    """The smallest usable norm; shorter vectors may be rounded to norm 0."""
    return float(torch.finfo(vectors.dtype).tiny ** 0.5)


def kernel_profile(cos: Tensor, theta: Tensor) -> Tensor:
    """K_θ / (|h|·|w|) as a function of the cosine, with exact gradients at every θ. Shapes broadcast."""
    return _Profile.apply(cos, theta)  # type: ignore[no-untyped-call]


def clamp_theta(theta: Tensor) -> Tensor:
    """θ with MIN_THETA ≤ |θ| ≤ MAX_THETA."""
    theta = theta.clamp(-MAX_THETA, MAX_THETA)
    return torch.where(theta.abs() < MIN_THETA, MIN_THETA, theta)


def kappa_and_slope(theta: Tensor) -> tuple[Tensor, Tensor]:
    """κ(θ) and κ′(θ) = −q′/q², from q(θ) = 1/κ(θ) = Σ_k 2·(−θ)^k / (k + 2)!."""
    given, theta = theta.dtype, theta.double()  # cheap, one number per sense; float32 would lose digits
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


def exp_remainder(x: Tensor, e: Tensor) -> Tensor:
    """F(x) = x·exp(x) − E to full precision, given E = exp(x) − 1."""
    series = torch.full_like(x, F_SERIES[-1])
    for coefficient in reversed(F_SERIES[:-1]):
        series = series * x + coefficient
    return torch.where(x.abs() < 0.3, x**2 * series, x * e + (x - e))


class _Profile(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, cos: Tensor, theta: Tensor) -> Tensor:
        ctx.save_for_backward(cos, theta)
        theta = clamp_theta(theta)
        kappa, _ = kappa_and_slope(theta)
        return torch.expm1(-theta * cos) * (-kappa / theta)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, Tensor | None]:
        cos, given = ctx.saved_tensors
        theta = clamp_theta(given)
        grad_cos = grad_theta = None
        if ctx.needs_input_grad[0]:
            kappa, _ = kappa_and_slope(theta)
            grad_cos = (outer[0] * kappa * torch.exp(-theta * cos)).sum_to_size(cos.shape)
        if ctx.needs_input_grad[1]:
            # In float64: this difference crosses 0 between cos = 0 and 1 for every θ.
            theta = theta.double()
            kappa, slope = kappa_and_slope(theta)
            x = -theta * cos.double()
            e = torch.expm1(x)
            by_theta = -(slope / theta) * e - (kappa / theta**2) * exp_remainder(x, e)
            inside = given.abs() <= MAX_THETA
            grad_theta = (outer[0] * by_theta).sum_to_size(given.shape).to(given.dtype) * inside
        return grad_cos, grad_theta


@dataclass(frozen=True)
class SenseTable:
    """The senses of every word, and sums over them.

        log P(y = i) = logsumexp_j log P(s = ⟨i, j⟩)

    Miao et al. 2019, §3 (papers.bib: miao2019kernelized): the Bayesian composition of a word's senses.
    Senses may have any order. The rank of a sense is its number among those of its word.

    For many such sums the senses are sorted first: by rank, and within a rank words with more senses first.
    Then the senses of each rank are contiguous, and the sums need only slices.

    Shapes: V words, S senses, J the most senses of a word, W the words with several senses.
    """

    words_S: Tensor
    """The word of every sense."""
    senses_VJ: Tensor
    """The senses of every word, padded to J with its first sense."""
    is_sense_VJ: Tensor
    """False on padding."""
    is_identity: bool
    """Every word has one sense, in word order."""
    order_S: Tensor
    """The sorted senses."""
    position_S: Tensor
    """The position of each sense in `order_S`."""
    ranks: tuple[slice, ...]
    """The positions of the senses of each rank."""

    @classmethod
    def from_words(cls, words_S: Tensor, vocab_size: int) -> SenseTable:
        """Build the table from the word of every sense."""
        counts_V = torch.bincount(words_S, minlength=vocab_size)
        missing = (counts_V[:vocab_size] == 0).nonzero()[:, 0].tolist()
        if missing:
            raise ValueError(
                f"{len(missing)} of {vocab_size} words have no sense, the first of them word {missing[0]}: "
                "give every word at least one"
            )
        if len(counts_V) > vocab_size:
            raise ValueError(
                f"a sense belongs to word {len(counts_V) - 1}, but there are {vocab_size} words: "
                f"name words from 0 to {vocab_size - 1}"
            )
        max_senses = int(counts_V.max())
        order_S = torch.argsort(words_S, stable=True)
        sorted_S = words_S[order_S]
        starts_V = counts_V.cumsum(0) - counts_V
        rank_S = torch.arange(len(words_S), device=words_S.device) - starts_V[sorted_S]
        senses_VJ = order_S[starts_V][:, None].repeat(1, max_senses)
        senses_VJ[sorted_S, rank_S] = order_S
        is_sense_VJ = torch.arange(max_senses, device=words_S.device) < counts_V[:, None]
        is_identity = max_senses == 1 and bool(
            (order_S == torch.arange(vocab_size, device=words_S.device)).all()
        )
        most_first_V = torch.argsort(counts_V, descending=True, stable=True)
        ranked = enumerate(is_sense_VJ.t())
        ordered_S = torch.cat([senses_VJ[most_first_V[: int(real_V.sum())], rank] for rank, real_V in ranked])
        ends = is_sense_VJ.sum(0).cumsum(0).tolist()
        ranks = tuple(slice(begin, end) for begin, end in pairwise([0, *ends]))
        position_S = torch.argsort(ordered_S)
        return cls(words_S, senses_VJ, is_sense_VJ, is_identity, ordered_S, position_S, ranks)

    @property
    def n_multi_sense(self) -> int:
        """The number of words with several senses."""
        return self.ranks[1].stop - self.ranks[1].start if len(self.ranks) > 1 else 0

    def blocks(self) -> Iterator[tuple[slice, slice]]:
        """Per rank, for words with several senses: the positions of the senses, and the words."""
        for rank in self.ranks:
            words = min(rank.stop - rank.start, self.n_multi_sense)
            yield slice(rank.start, rank.start + words), slice(words)

    def sum_multi_sense(self, ordered_RS: Tensor, add: Callable[..., Tensor]) -> Tensor:
        """(R, S) → (R, W): sums over the senses of words with several, by `add`."""
        sums_RW = ordered_RS[:, : self.n_multi_sense].clone()
        for senses, words in islice(self.blocks(), 1, None):
            add(sums_RW[:, words], ordered_RS[:, senses], out=sums_RW[:, words])
        return sums_RW

    def logsumexp_by_word(self, scores: Tensor) -> Tensor:
        """(…, S) → (…, V): logsumexp over the senses of every word."""
        if self.is_identity:
            return scores
        sums, *further = scores[..., self.senses_VJ].masked_fill(~self.is_sense_VJ, -torch.inf).unbind(-1)
        for more in further:
            sums = torch.logaddexp(sums, more)
        return sums
