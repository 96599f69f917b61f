"""Nucleus-like sampling: top-p, typical, top-H, tail-free and min-k cut a ranking of the tokens.

The vocabulary is not sorted: the first 256 tokens decide, unless the boundary is closer to a token than the
rounding errors of a long sum; then the plain definition is evaluated.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unspool.decode.arguments import number
from unspool.decode.transforms.scores import (
    HEAD,
    Truncation,
    alive,
    ascending,
    edges,
    first,
    precise,
    rounding,
)


@dataclass(frozen=True)
class TopP(Truncation):
    """Top-p, nucleus sampling: keep the smallest set of tokens whose probability reaches p.

        V⁽ᵖ⁾ = argmin |S|  such that  Σ_{x∈S} p(x) ≥ p
        keep x  ⇔  the mass ranked strictly before x is < p  ⇔  the mass ranked from x on is > 1 − p

    Holtzman, Buys, Du, Forbes & Choi 2020, §3.1, eq. (2).
    papers.bib: holtzman2020curious

    The most probable token always stays. p = 1 keeps everything. Ties: if the boundary is among equally
    probable tokens, those with the lower ids stay, as many as needed.

    The masses are compared in the precision of the scores, as in Hugging Face, so that the same number of
    tokens survives. Differs from Hugging Face: among tokens tied at the boundary, it leaves the choice to an
    unstable sort, and for p = 1 it cuts tokens whose probability underflows to 0.
    """

    p: float = number(
        0.9, above=0, at_most=1, advice="1 keeps everything; for the most probable token, use Greedy()."
    )

    def keeps(self, logp_NV: Tensor) -> Tensor:
        if self.p == 1:
            return alive(logp_NV)
        logp_NV = precise(logp_NV)
        rest = 1 - self.p

        def head(_: Tensor, token_NK: Tensor) -> Tensor:
            p_NV = logp_NV.softmax(dim=-1)
            total_N1 = p_NV.sum(dim=-1, keepdim=True, dtype=torch.float64)
            p_NK = p_NV.gather(1, token_NK).double()
            from_here_NK = 1 - (p_NK.cumsum(dim=-1) - p_NK) / total_N1
            count_N = (from_here_NK > rest).sum(dim=-1)
            is_close_N = ((from_here_NK - rest).abs() <= rest * rounding(logp_NV.shape[1])).any(dim=-1)
            return count_N.masked_fill(is_close_N | (count_N == HEAD), 0)

        def full(rows_R: Tensor) -> tuple[Tensor, Tensor]:
            sorted_RV = ascending(logp_NV[rows_R])
            from_here_RV = sorted_RV.softmax(dim=-1).cumsum(dim=-1)
            count_R = (from_here_RV > rest).sum(dim=-1).clamp(min=1)
            return sorted_RV.gather(1, sorted_RV.shape[1] - count_R[:, None]), count_R

        return first(logp_NV, *edges(logp_NV, head, full))


FINE = 64
"""If 1 − τ is below this multiple of the rounding error of a float32 sum, the sum is in float64."""


@dataclass(frozen=True)
class Typical(Truncation):
    """Locally typical sampling: keep the tokens whose surprise is nearest to the expected one.

        rank x by |−log p(x) − H|,   H = −Σ p log p;   keep the first whose mass together reaches τ

    Meister, Pimentel, Wiher & Cotterell 2023 (the constrained problem that defines the truncation set).
    papers.bib: meister2023typical

    The most probable token may be cut, because it can be less surprising than expected. τ = 1 keeps
    everything. Ties: all tokens as far from H as the last one kept stay (as in Hugging Face, whose kept set
    this is). The masses are summed in the precision of the scores, and in float64 if τ is close to 1.
    """

    tau: float = number(0.95, above=0, at_most=1, advice="Common values are 0.2 … 0.95; 1 keeps everything.")

    def keeps(self, logp_NV: Tensor) -> Tensor:
        if self.tau == 1:
            return alive(logp_NV)
        scores_NV = precise(logp_NV)
        V = scores_NV.shape[1]
        logp_NV = scores_NV.log_softmax(dim=-1)
        p_NV = logp_NV.exp()
        entropy_N1 = -(logp_NV * p_NV).nansum(dim=-1, keepdim=True)
        distance_NV = (-logp_NV - entropy_N1).abs()

        summed_in = torch.float64 if 1 - self.tau < FINE * rounding(V) else scores_NV.dtype

        def head(_: Tensor, token_NK: Tensor) -> Tensor:
            total_N1 = p_NV.sum(dim=-1, keepdim=True, dtype=torch.float64)
            upto_NK = p_NV.gather(1, token_NK).double().cumsum(dim=-1) / total_N1
            count_N = (upto_NK < self.tau).sum(dim=-1) + 1
            is_close_N = ((upto_NK - self.tau).abs() <= self.tau * rounding(V)).any(dim=-1)
            return count_N.masked_fill(is_close_N | (count_N > HEAD), 0)

        def full(rows_R: Tensor) -> tuple[Tensor, Tensor]:
            distance_RV, token_RV = distance_NV[rows_R].sort(dim=-1)
            upto_RV = scores_NV[rows_R].to(summed_in).gather(1, token_RV).softmax(dim=-1).cumsum(dim=-1)
            last_R1 = (upto_RV < self.tau).sum(dim=-1, keepdim=True).clamp(max=V - 1)
            return -distance_RV.gather(1, last_R1), last_R1[:, 0] + 1

        edge_N1, _ = edges(-distance_NV, head, full)
        return (-distance_NV >= edge_N1) & alive(logp_NV)


ROUNDING = 1e-9
"""Tolerance in nats for H(q_k) equal to the bound (uniform rows, α = 1)."""


@dataclass(frozen=True)
class TopH(Truncation):
    """Top-H: keep the most probable tokens while their entropy is at most α times that of the row.

        keep the largest k with  H(q_k) ≤ α · H(p),     q_k = the k most probable tokens, renormalised
        H(q_k) = log s_k + h_k/s_k,   s_k = Σ_{r≤k} p₍ᵣ₎,   h_k = −Σ_{r≤k} p₍ᵣ₎ log p₍ᵣ₎

    Potraghloo, Azizi, Kundu & Pedram 2025 (the greedy answer to entropy-constrained mass maximisation; α =
    0.4). papers.bib: potraghloo2025toph

    H(q_k) does not fall with k, so that the ranking can be cut at the first violation. The most probable
    token always stays. α = 1 keeps everything. Ties: equal probabilities are ranked by id, the lower first.
    Differs from Hugging Face (and from the authors' code): they compare h_k, without the renormalisation of
    q_k, with α·H, and consider only the 100 most probable tokens.
    """

    alpha: float = number(0.4, above=0, at_most=1, advice="The paper uses 0.4; 1 keeps everything.")

    def keeps(self, logp_NV: Tensor) -> Tensor:
        if self.alpha == 1:
            return alive(logp_NV)
        exact_NV = logp_NV.double().log_softmax(dim=-1)
        term_NV = (exact_NV.softmax(dim=-1) * exact_NV).nan_to_num(nan=0.0)
        bound_N1 = ROUNDING - self.alpha * term_NV.sum(dim=-1, keepdim=True)

        def head(exact_NK: Tensor, _: Tensor) -> Tensor:
            count_N = _fitting(exact_NK, bound_N1)
            return count_N.masked_fill(count_N == HEAD, 0)

        def full(rows_R: Tensor) -> tuple[Tensor, Tensor]:
            exact_RV = ascending(exact_NV[rows_R]).flip(-1)
            count_R = _fitting(exact_RV, bound_N1[rows_R])
            return exact_RV.gather(1, count_R[:, None] - 1), count_R

        return first(exact_NV, *edges(exact_NV, head, full)) & alive(logp_NV)


def _fitting(logp_NK: Tensor, bound_N1: Tensor) -> Tensor:
    """Number of first tokens whose renormalised entropy is within the bound; at least one."""
    p_NK = logp_NK.exp()
    mass_NK = p_NK.cumsum(dim=-1)
    entropy_NK = mass_NK.log() - (p_NK * logp_NK).nan_to_num(nan=0.0).cumsum(dim=-1) / mass_NK
    return (entropy_NK <= bound_N1).sum(dim=-1).clamp(min=1)


@dataclass(frozen=True)
class TailFree(Truncation):
    """Tail-free sampling: keep the head of the sorted probabilities, up to the share z of their curvature.

        d_r = |p₍ᵣ₎ − 2p₍ᵣ₊₁₎ + p₍ᵣ₊₂₎|,   p₍₁₎ ≥ p₍₂₎ ≥ …
        keep ranks 1 and 2 ≤ r < V with  Σ_{s<r} d_s / Σ_s d_s ≤ z

    Bricken 2019.
    papers.bib: bricken2019tailfree

    The curvature d_r belongs to rank r + 1, the middle one of its three, so that the first token always stays
    and the last never does. z = 1 keeps everything (as in other tools), and so does a row without curvature:
    a uniform row, or fewer than three tokens. Ties: equal probabilities are ranked by id, the lower first.
    The whole vocabulary is sorted.
    """

    z: float = number(0.95, above=0, at_most=1, advice="Common values are 0.9 … 0.99; 1 keeps everything.")

    def keeps(self, logp_NV: Tensor) -> Tensor:
        if self.z == 1 or logp_NV.shape[1] < 3:
            return alive(logp_NV)
        logp_NV = precise(logp_NV)
        ranked_NV = ascending(logp_NV).flip(-1)
        bend_NC = ranked_NV.double().softmax(dim=-1).diff(n=2).abs()
        total_N1 = bend_NC.sum(dim=-1, keepdim=True)
        count_N = 1 + (bend_NC.cumsum(dim=-1) <= self.z * total_N1).sum(dim=-1)
        count_N = count_N.masked_fill(total_N1[:, 0] == 0, logp_NV.shape[1])
        return first(logp_NV, ranked_NV.gather(1, count_N[:, None] - 1), count_N) & alive(logp_NV)


@dataclass(frozen=True)
class MinK(Truncation):
    """Min-k: cut at the cliff of the sorted logits, the steepest step from one rank to the next.

        w_i = (l₍ᵢ₎ − l₍ᵢ₊₁₎) / (i · R),   R = l₍₁₎ − l₍ₙ₎,   l₍₁₎ ≥ l₍₂₎ ≥ …
        keep the first k ranks,   k = max( argmax_i w_i , ⌊τ / R⌋ )

    Ding, Li, Garces Arias, Aßenmacher, Heumann & Zhang 2026 (algorithm 1).
    papers.bib: ding2026mink

    Steps near the top weigh more, by 1/i. A temperature does not move the cliff, but changes ⌊τ/R⌋: put MinK
    before Temperature, as the authors do. ⌊τ/R⌋ keeps several tokens of an almost flat row; τ = 0 is the
    cliff alone. The n tokens are those not cut before. Ties: of equal steps the first is the cliff; equal
    logits are ranked by id, the lower first. A uniform row (R = 0) is kept. Differs from the paper: it adds
    10⁻⁸ to R.
    """

    tau: float = number(
        3.0, at_least=0, advice="The paper uses 3, and finds 1 … 10 similar; 0 uses the cliff alone."
    )

    def keeps(self, logp_NV: Tensor) -> Tensor:
        logp_NV = precise(logp_NV)
        alive_NV = alive(logp_NV)
        left_N = alive_NV.sum(dim=-1)
        last_N1 = logp_NV.masked_fill(~alive_NV, torch.inf).amin(dim=-1, keepdim=True).double()
        range_N = (logp_NV.amax(dim=-1, keepdim=True) - last_N1)[:, 0]
        fallback_N = torch.minimum((self.tau / range_N).nan_to_num(posinf=torch.inf), left_N).long()
        fallback_N = torch.where(range_N == 0, left_N, fallback_N)

        def head(logp_NK: Tensor, _: Tensor) -> Tensor:
            K = logp_NK.shape[1]
            cliff_N, steepest_N = _cliff(logp_NK.double())
            # No step beyond rank K can weigh more than the whole remaining range at rank K.
            decided_N = steepest_N >= (logp_NK[:, -1].double() - last_N1[:, 0]) / K
            count_N = torch.maximum(cliff_N, fallback_N)
            return torch.where(decided_N & (count_N <= K), count_N, 0)

        def full(rows_R: Tensor) -> tuple[Tensor, Tensor]:
            logp_RV = ascending(logp_NV[rows_R]).flip(-1)
            count_R = torch.maximum(_cliff(logp_RV.double())[0], fallback_N[rows_R])
            return logp_RV.gather(1, count_R[:, None] - 1), count_R

        return first(logp_NV, *edges(logp_NV, head, full)) & alive_NV


def _cliff(sorted_NK: Tensor) -> tuple[Tensor, Tensor]:
    """The rank i with the largest step / i, and that value; steps to cut tokens do not count."""
    if sorted_NK.shape[1] < 2:
        return torch.ones(len(sorted_NK), dtype=torch.long), sorted_NK.new_zeros(len(sorted_NK))
    step_NK = -sorted_NK.diff(dim=-1)
    step_NK = step_NK.masked_fill(~torch.isfinite(step_NK), 0)
    rank_K = torch.arange(1, sorted_NK.shape[1], device=sorted_NK.device)
    steepest_N, place_N = (step_NK / rank_K).max(dim=-1)
    return place_N + 1, steepest_N
