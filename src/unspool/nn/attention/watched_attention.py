"""Attention that can be looked at: its weights as a tensor, which the usual way never holds.

    α[k,t₁,t₂] = softmax_{t₂}( s · Q[k,t₁]·K[k,t₂] ),   out[k,t₁] = Σ_{t₂} α[k,t₁,t₂] V[k,t₂]

Vaswani et al. 2017, eq. 1 (papers.bib: vaswani2017attention). It costs N·H·T·S numbers of memory, and is
asked for only where somebody wants to see α: losses on attention, dependency heads. Shapes: N rows, T
queries, S keys, H query heads, K key–value heads.
"""

from __future__ import annotations

import torch
from torch import Tensor


def watched_attention(
    q_NHTI: Tensor,
    k_NKSI: Tensor,
    v_NKSI: Tensor,
    scale: float,
    mask: Tensor | None = None,
    *,
    causal: bool = False,
    cap: float | None = None,
) -> tuple[Tensor, Tensor]:
    """What is attended to, (N, H, T, I), and α, (N, H, T, S).

    `mask` (N or 1, 1, T or 1, S) is False, or −∞, where a query may not look; `causal` is for T = S; scores
    beyond `cap` are bent to it, c·tanh(s/c).
    """
    group = q_NHTI.shape[1] // k_NKSI.shape[1]
    if group > 1:
        k_NKSI = k_NKSI.repeat_interleave(group, dim=1)
    if v_NKSI.shape[1] < q_NHTI.shape[1]:
        v_NKSI = v_NKSI.repeat_interleave(q_NHTI.shape[1] // v_NKSI.shape[1], dim=1)
    score_NHTS = (q_NHTI * scale) @ k_NKSI.transpose(2, 3)
    if cap is not None:
        score_NHTS = cap * torch.tanh(score_NHTS / cap)
    if causal:
        T, S = score_NHTS.shape[2:]
        mask = torch.ones(T, S, dtype=torch.bool, device=score_NHTS.device).tril()
    if mask is not None and mask.dtype == torch.bool:
        score_NHTS = score_NHTS.masked_fill(~mask, -torch.inf)
    elif mask is not None:
        score_NHTS = score_NHTS + mask
    alpha_NHTS = score_NHTS.softmax(dim=-1)
    return alpha_NHTS @ v_NKSI, alpha_NHTS
