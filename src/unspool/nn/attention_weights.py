"""Attention that can be looked at: its weights as a tensor, which the usual way never holds.

    α[k,t₁,t₂] = softmax_{t₂}( s · Q[k,t₁]·K[k,t₂] ),   out[k,t₁] = Σ_{t₂} α[k,t₁,t₂] V[k,t₂]

Vaswani et al. 2017, eq. 1 (papers.bib: vaswani2017attention). It costs N·H·T·S numbers of memory, and is
asked for only where somebody wants to see α: losses on attention, dependency heads. Shapes: N rows, T
queries, S keys, H query heads, K key–value heads.
"""

from __future__ import annotations

from collections.abc import Sequence

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


# From where tokens look to where words look.
#
#     α_words[k,v,w] = 1/|v| Σ_{s ∈ v} Σ_{t ∈ w} α[k,s,t]
#
# Clark et al. 2019, §2 (papers.bib: clark2019what): attention to a word is the sum over its tokens, attention
# from a word the mean over its tokens. What goes to tokens of no word (BOS) is left out. Shapes: H heads, T
# tokens, W words.


def word_attention(alpha_HTT: Tensor, tokens: Sequence[Sequence[int]]) -> Tensor:
    """(H, T, T) → (H, W, W), from the places of each word's tokens."""
    spells_WT = alpha_HTT.new_zeros(len(tokens), alpha_HTT.shape[-1])
    for word, places in enumerate(tokens):
        spells_WT[word, list(places)] = 1.0
    return (spells_WT / spells_WT.sum(dim=1, keepdim=True)) @ alpha_HTT @ spells_WT.t()


def label_arcs(
    words: Sequence[tuple[int | None, str]], label: str, whole: bool = False, right_to_left: bool = False
) -> list[tuple[int, int]]:
    """The arcs of a label, each from the word that is read later to the one that a causal model has read.

    `words` are the place of each word's head, and its label; without `whole`, "nsubj" is "nsubj:pass", too.
    """
    arcs = []
    for place, (head, name) in enumerate(words):
        named = name if whole or ":" in label else name.partition(":")[0]
        if head is not None and named == label:
            later, earlier = max(place, head), min(place, head)
            arcs.append((earlier, later) if right_to_left else (later, earlier))
    return arcs


def picks(alpha_HWW: Tensor, arcs: Sequence[tuple[int, int]]) -> Tensor:
    """(H, A): whether each head looks from the first word of an arc most at the second, itself left out."""
    later, earlier = (torch.tensor(side, device=alpha_HWW.device) for side in zip(*arcs, strict=True))
    rows_HAW = alpha_HWW[:, later].clone()
    rows_HAW[:, torch.arange(len(arcs)), later] = -1.0
    return rows_HAW.argmax(dim=-1) == earlier
