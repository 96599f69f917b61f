"""Nucleus-like sampling: top-p, typical, top-H, tail-free and min-k cut a ranking of the tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from unspool.arguments import number
from unspool.decode.transforms.scores import Truncation, alive, precise


def descending(key_NV: Tensor) -> Tensor:
    """Sort every row in descending order; on a CPU with numpy, whose sort is ten times as fast as torch's."""
    if key_NV.device.type != "cpu":
        return key_NV.sort(dim=-1, descending=True).values
    return torch.from_numpy(np.sort(key_NV.detach().numpy(), axis=-1)).flip(-1)


def ascending_order(key_NV: Tensor) -> Tensor:
    """The positions of every row's keys in ascending order; see `descending`. Ties come in any order."""
    if key_NV.device.type != "cpu":
        return key_NV.argsort(dim=-1)
    return torch.from_numpy(np.argsort(key_NV.detach().numpy(), axis=-1))


def first(key_NV: Tensor, ranked_NV: Tensor, count_N: Tensor) -> Tensor:
    """The mask of the count_N highest keys of every row; `ranked_NV` are its keys in descending order.

    Of equal keys the lower ids are first, as in argmax.
    """
    edge_N1 = ranked_NV.gather(1, count_N[:, None] - 1)
    keep_NV = key_NV >= edge_N1
    surplus_N = keep_NV.sum(dim=-1) - count_N
    rows_R = surplus_N.nonzero()[:, 0]
    if len(rows_R):
        tied_RV = key_NV[rows_R] == edge_N1[rows_R]
        from_the_end_RV = tied_RV.flip(-1).cumsum(-1).flip(-1)
        keep_NV[rows_R] &= ~(tied_RV & (from_the_end_RV <= surplus_N[rows_R, None]))
    return keep_NV


@dataclass(frozen=True)
class TopP(Truncation):
    """Top-p, nucleus sampling: keep the smallest set of tokens whose probability reaches p.

        V⁽ᵖ⁾ = argmin |S|  such that  Σ_{x∈S} p(x) ≥ p
        keep x  ⇔  the mass ranked strictly before x is < p  ⇔  the mass ranked from x on is > 1 − p

    Holtzman, Buys, Du, Forbes & Choi 2020, §3.1, eq. (2). papers.bib: holtzman2020curious

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
        ranked_NV = descending(logp_NV)
        from_here_NV = ranked_NV.flip(-1).softmax(dim=-1).cumsum(dim=-1)
        count_N = (from_here_NV > 1 - self.p).sum(dim=-1).clamp(min=1)
        return first(logp_NV, ranked_NV, count_N)


FINE_TAU = 0.99
"""Above this τ, the masses are summed in float64: the tokens between τ and 1 have little mass."""


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
        logp_NV = scores_NV.log_softmax(dim=-1)
        entropy_N1 = -(logp_NV * logp_NV.exp()).nansum(dim=-1, keepdim=True)
        distance_NV = (-logp_NV - entropy_N1).abs()
        token_NV = ascending_order(distance_NV)
        summed_in = torch.float64 if self.tau > FINE_TAU else scores_NV.dtype
        upto_NV = scores_NV.to(summed_in).gather(1, token_NV).softmax(dim=-1).cumsum(dim=-1)
        last_N1 = (upto_NV < self.tau).sum(dim=-1, keepdim=True).clamp(max=logp_NV.shape[1] - 1)
        edge_N1 = distance_NV.gather(1, token_NV.gather(1, last_N1))
        return (distance_NV <= edge_N1) & alive(logp_NV)


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
        ranked_NV = descending(exact_NV)
        p_NV = ranked_NV.exp()
        mass_NV = p_NV.cumsum(dim=-1)
        entropy_NV = mass_NV.log() - (p_NV * ranked_NV).nan_to_num(nan=0.0).cumsum(dim=-1) / mass_NV
        count_N = (entropy_NV <= bound_N1).sum(dim=-1).clamp(min=1)
        return first(exact_NV, ranked_NV, count_N) & alive(logp_NV)


@dataclass(frozen=True)
class TailFree(Truncation):
    """Tail-free sampling: keep the head of the sorted probabilities, up to the share z of their curvature.

        d_r = |p₍ᵣ₎ − 2p₍ᵣ₊₁₎ + p₍ᵣ₊₂₎|,   p₍₁₎ ≥ p₍₂₎ ≥ …
        keep ranks 1 and 2 ≤ r < V with  Σ_{s<r} d_s / Σ_s d_s ≤ z

    Bricken 2019 (papers.bib: bricken2019tailfree).

    The curvature d_r belongs to rank r + 1, the middle one of its three, so that the first token always stays
    and the last never does. z = 1 keeps everything (as in other tools), and so does a row without curvature:
    a uniform row, or fewer than three tokens. Ties: equal probabilities are ranked by id, the lower first.
    """

    z: float = number(0.95, above=0, at_most=1, advice="Common values are 0.9 … 0.99; 1 keeps everything.")

    def keeps(self, logp_NV: Tensor) -> Tensor:
        if self.z == 1 or logp_NV.shape[1] < 3:
            return alive(logp_NV)
        logp_NV = precise(logp_NV)
        ranked_NV = descending(logp_NV)
        bend_NC = ranked_NV.double().softmax(dim=-1).diff(n=2).abs()
        total_N1 = bend_NC.sum(dim=-1, keepdim=True)
        count_N = 1 + (bend_NC.cumsum(dim=-1) <= self.z * total_N1).sum(dim=-1)
        count_N = count_N.masked_fill(total_N1[:, 0] == 0, logp_NV.shape[1])
        return first(logp_NV, ranked_NV, count_N) & alive(logp_NV)


@dataclass(frozen=True)
class MinK(Truncation):
    """Min-k: cut at the cliff of the sorted logits, the steepest step from one rank to the next.

        w_i = (l₍ᵢ₎ − l₍ᵢ₊₁₎) / (i · R),   R = l₍₁₎ − l₍ₙ₎,   l₍₁₎ ≥ l₍₂₎ ≥ …
        keep the first k ranks,   k = max( argmax_i w_i , ⌊τ / R⌋ )

    Ding, Li, Garces Arias, Aßenmacher, Heumann & Zhang 2026 (algorithm 1). papers.bib: ding2026mink

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
        ranked_NV = descending(logp_NV)
        count_N = torch.maximum(_cliff(ranked_NV.double()), fallback_N)
        return first(logp_NV, ranked_NV, count_N) & alive_NV


def _cliff(ranked_NV: Tensor) -> Tensor:
    """(N): the rank i with the largest step / i; steps to cut tokens do not count."""
    if ranked_NV.shape[1] < 2:
        return torch.ones(len(ranked_NV), dtype=torch.long, device=ranked_NV.device)
    step_NV = -ranked_NV.diff(dim=-1)
    step_NV = step_NV.masked_fill(~torch.isfinite(step_NV), 0)
    rank_V = torch.arange(1, ranked_NV.shape[1], device=ranked_NV.device)
    return (step_NV / rank_V).argmax(dim=-1) + 1
