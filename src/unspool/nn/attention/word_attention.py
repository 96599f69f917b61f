"""From where tokens look to where words look.

    α_words[k,v,w] = 1/|v| Σ_{s ∈ v} Σ_{t ∈ w} α[k,s,t]

Clark et al. 2019, §2 (papers.bib: clark2019what): attention to a word is the sum over its tokens, attention
from a word the mean over its tokens. What goes to tokens of no word (BOS) is left out. Shapes: H heads, T
tokens, W words.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


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
