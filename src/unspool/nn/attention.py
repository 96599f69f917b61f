"""Multi-head self-attention and cross-attention with grouped key–value heads and a KV cache.

Shapes: N rows, T new positions, S all positions, H query heads, K key–value heads, G = H/K, I head width.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from unspool.nn.linear import DirectCall, Linear
from unspool.nn.norms import RMSNorm
from unspool.nn.positions import rotate


class KVCache:
    """Keys and values of one layer: (N, K, capacity, I), of which the first `length` columns are filled.

    The capacity doubles when it is full, so a step usually writes one column and copies nothing.
    """

    def __init__(self, reserve: int = 0) -> None:
        self.length = 0
        self._reserve = reserve
        self._parts: list[Tensor] = []
        """Keys and values; empty before the first column."""

    @property
    def filled(self) -> list[Tensor]:
        """All columns of keys and values."""
        return [part[:, :, : self.length] for part in self._parts]

    def append(self, keys_NKTI: Tensor, values_NKTI: Tensor) -> list[Tensor]:
        """Append T columns; returns all columns."""
        new, start, before = (keys_NKTI, values_NKTI), self.length, self.filled
        self.length += keys_NKTI.shape[2]
        if not self._parts or self.length > self._parts[0].shape[2]:
            capacity = max(2 * start, self.length + self._reserve)
            self._parts = [part.new_empty(*part.shape[:2], capacity, part.shape[3]) for part in new]
            for part, old in zip(self._parts, before, strict=False):
                part[:, :, :start] = old
        for part, added in zip(self._parts, new, strict=True):
            part[:, :, start : self.length] = added
        return self.filled

    def select(self, rows_M: Tensor, since: int = 0) -> None:
        """Reorder, repeat or drop rows; the rows must be equal in the columns before `since`."""
        for at, part in enumerate(self._parts):
            if len(rows_M) != len(part):
                since = 0
                self._parts[at] = part.new_empty(len(rows_M), *part.shape[1:])
            # Unfilled columns are not copied.
            moved = part[:, :, since : self.length].index_select(0, rows_M)
            self._parts[at][:, :, since : self.length] = moved

    def truncate(self, length: int) -> None:
        """Drop the columns from `length` on."""
        self.length = min(self.length, length)


class QueryKeyNorm(DirectCall):
    """QK-norm: queries and keys are normalised before their inner product, which bounds the scores.

        head    q ← RMSNorm(q), k ← RMSNorm(k) per head, one gain for all heads   (Qwen 3, Gemma 3)
        whole   the same over all heads at once                                   (OLMo 2)

    Dehghani et al. 2023, §2 (papers.bib: dehghani2023scaling).
    Differs from the paper: RMSNorm instead of LayerNorm, as in these language models.
    """

    def __init__(self, heads: int, kv_heads: int, head_width: int, eps: float, kind: str) -> None:
        super().__init__()
        self.whole = kind == "whole"
        self.query = RMSNorm(heads * head_width if self.whole else head_width, eps)
        self.key = RMSNorm(kv_heads * head_width if self.whole else head_width, eps)

    def forward(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """(…, H, I) and (…, K, I) → the same shapes."""
        if not self.whole:
            return self.query(q), self.key(k)
        return self.query(q.flatten(-2)).view(q.shape), self.key(k.flatten(-2)).view(k.shape)


class SelfAttention(DirectCall):
    """Self-attention, causal or bidirectional, with keys and values shared by groups of query heads.

        α[k,t₁,t₂] = softmax_{t₂}( Q[k,t₁]·K[k,t₂] / √I ),   out = W^O concat_k Σ_{t₂} α[k,t₁,t₂] V[k,t₂]

    Vaswani et al. 2017, eq. 1 and §3.2.2 (papers.bib: vaswani2017attention); groups: Ainslie et al. 2023,
    §2.2 (papers.bib: ainslie2023gqa). `qkv` stacks W^Q, W^K and W^V, so one product serves all three.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        kv_heads: int,
        head_width: int,
        *,
        qkv_bias: bool,
        out_bias: bool,
        causal: bool = True,
        norm: QueryKeyNorm | None = None,
        cap: float | None = None,
    ) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_width, self.causal = heads, kv_heads, head_width, causal
        self.qkv = Linear(width, (heads + 2 * kv_heads) * head_width, qkv_bias)
        self.out = Linear(heads * head_width, width, out_bias)
        self.norm = norm
        self.cap = cap
        """Soft cap of the scores, c·tanh(s/c) (Gemma 2)."""

    @property
    def projections(self) -> tuple[Linear, ...]:
        """The layers that compute queries, keys and values, in this order."""
        return (self.qkv,)

    def forward(
        self,
        x_NTD: Tensor,
        rotary: tuple[Tensor, Tensor] | None = None,
        mask: Tensor | None = None,
        past: KVCache | None = None,
        attentions: list[Tensor] | None = None,
    ) -> Tensor:
        """(N, T, D) → (N, T, D).

        `mask` (N or 1, 1, T or 1, S) is False or −∞ on masked positions. If `attentions` is a list, α (N,
        H, T, S) is appended to it.
        """
        N, T, _ = x_NTD.shape
        H, K, I = self.heads, self.kv_heads, self.head_width  # noqa: E741
        qkv = self.qkv(x_NTD).view(N, T, H + 2 * K, I)
        qk, v = torch.split_with_sizes(qkv, (H + K, K), dim=2)
        if self.norm is not None:
            qk = torch.cat(self.norm(*torch.split_with_sizes(qk, (H, K), dim=2)), dim=2)
        if rotary is not None:
            qk = rotate(qk, *rotary)
        q, k = torch.split_with_sizes(qk, (H, K), dim=2)
        k_NKSI, v_NKSI = k.transpose(1, 2), v.transpose(1, 2)
        if past is not None:
            k_NKSI, v_NKSI = past.append(k_NKSI, v_NKSI)
        causal = self.causal and mask is None and T > 1
        if attentions is not None or self.cap is not None:
            out_NHTI, alpha_NHTS = attention_with_weights(
                q.transpose(1, 2), k_NKSI, v_NKSI, I**-0.5, mask, causal=causal, cap=self.cap
            )
            if attentions is not None:
                attentions.append(alpha_NHTS)
        elif T == 1:
            # The G queries of a group share keys: put them on the axis of positions.
            q_NKGI = q.reshape(N, K, H // K, I)
            out_NKGI = F.scaled_dot_product_attention(q_NKGI, k_NKSI, v_NKSI, attn_mask=mask)
            out_NHTI = out_NKGI.reshape(N, H, 1, I)
        else:
            out_NHTI = F.scaled_dot_product_attention(
                q.transpose(1, 2), k_NKSI, v_NKSI, attn_mask=mask, is_causal=causal, enable_gqa=H != K
            )
        return self.out(out_NHTI.transpose(1, 2).reshape(N, T, H * I))


class CrossAttention(DirectCall):
    """Multi-head attention of a decoder to the encoder output.

        K, V = H_enc W^K, H_enc W^V,   α[k,t,s] = softmax_s( (x_t W^Q)[k]·K[k,s] / √I ),
        out_t = W^O concat_k Σ_s α[k,t,s] V[k,s]

    Vaswani et al. 2017, §3.2.3 (papers.bib: vaswani2017attention). Shapes: B sources, each attended to by W
    adjacent rows (the hypotheses of a beam), T positions, S source tokens.
    """

    def __init__(
        self, width: int, heads: int, kv_heads: int, head_width: int, *, qkv_bias: bool, out_bias: bool
    ) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_width = heads, kv_heads, head_width
        self.query = Linear(width, heads * head_width, qkv_bias)
        self.kv = Linear(width, 2 * kv_heads * head_width, qkv_bias)
        self.out = Linear(heads * head_width, width, out_bias)

    def keys_values(self, memory_BSD: Tensor) -> tuple[Tensor, Tensor]:
        """(B, S, D) → K and V, (B, K, S, I) each, computed once per source."""
        B, S, _ = memory_BSD.shape
        kv = self.kv(memory_BSD).view(B, S, 2, self.kv_heads, self.head_width)
        k_BSKI, v_BSKI = kv.unbind(2)
        return k_BSKI.transpose(1, 2), v_BSKI.transpose(1, 2)

    def forward(
        self,
        x_NTD: Tensor,
        k_BKSI: Tensor,
        v_BKSI: Tensor,
        padding: Tensor | None = None,
        attentions: list[Tensor] | None = None,
    ) -> Tensor:
        """(N, T, D) → (N, T, D); rows i·W … i·W + W − 1 attend to source i, W = N/B.

        `padding` (B, 1, 1, S) is −∞ on padding. If `attentions` is a list, α (N, H, T, S) is appended to it.
        """
        (N, T, _), (B, K, S, I), H = x_NTD.shape, k_BKSI.shape, self.heads  # noqa: E741
        # The Q = W·T·G queries that share keys are adjacent.
        q_BKQI = self.query(x_NTD).view(B, -1, K, H // K, I).transpose(1, 2).reshape(B, K, -1, I)
        if attentions is None:
            out_BKQI = F.scaled_dot_product_attention(q_BKQI, k_BKSI, v_BKSI, attn_mask=padding)
        else:
            out_BKQI, alpha_BKQS = attention_with_weights(q_BKQI, k_BKSI, v_BKSI, I**-0.5, padding)
            alpha_BKWTGS = alpha_BKQS.view(B, K, N // B, T, H // K, S)
            attentions.append(alpha_BKWTGS.permute(0, 2, 1, 4, 3, 5).reshape(N, H, T, S))
        grouped = out_BKQI.reshape(B, K, -1, H // K, I).transpose(1, 2)
        return self.out(grouped.reshape(N, T, H * I))


def attention_with_weights(
    q_NHTI: Tensor,
    k_NKSI: Tensor,
    v_NKSI: Tensor,
    scale: float,
    mask: Tensor | None = None,
    *,
    causal: bool = False,
    cap: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention that returns its weights: the output (N, H, T, I) and α (N, H, T, S).

    Used only when α is needed (attention losses, dependency heads), because it holds N·H·T·S numbers.
    `mask` (N or 1, 1, T or 1, S) is False or −∞ on masked positions; `causal` requires T = S; `cap`
    soft-caps the scores, c·tanh(s/c).
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


def word_attention(alpha_HTT: Tensor, tokens: Sequence[Sequence[int]]) -> Tensor:
    """Attention between words from attention between tokens, given the token positions of each word.

        α_words[k,v,w] = 1/|v| Σ_{s ∈ v} Σ_{t ∈ w} α[k,s,t]

    Clark et al. 2019, §2 (papers.bib: clark2019what): attention to a word is the sum over its tokens,
    attention from a word the mean over its tokens. Tokens outside words (BOS) are ignored. (H, T, T) → (H,
    W, W).
    """
    spells_WT = alpha_HTT.new_zeros(len(tokens), alpha_HTT.shape[-1])
    for word, places in enumerate(tokens):
        spells_WT[word, list(places)] = 1.0
    return (spells_WT / spells_WT.sum(dim=1, keepdim=True)) @ alpha_HTT @ spells_WT.t()


def label_arcs(
    words: Sequence[tuple[int | None, str]], label: str, right_to_left: bool = False
) -> list[tuple[int, int]]:
    """The dependency arcs of a label as pairs (later word, earlier word), in reading order.

    `words` are (position of the head, label) of each word. "nsubj" also matches "nsubj:pass".
    """
    arcs = []
    for place, (head, name) in enumerate(words):
        named = name if ":" in label else name.partition(":")[0]
        if head is not None and named == label:
            later, earlier = max(place, head), min(place, head)
            arcs.append((earlier, later) if right_to_left else (later, earlier))
    return arcs


def find_arc_hits(alpha_HWW: Tensor, arcs: Sequence[tuple[int, int]]) -> Tensor:
    """(H, A): True if a head attends from the first word of an arc most to the second, itself excluded."""
    later, earlier = (torch.tensor(side, device=alpha_HWW.device) for side in zip(*arcs, strict=True))
    rows_HAW = alpha_HWW[:, later].clone()
    rows_HAW[:, torch.arange(len(arcs)), later] = -1.0
    return rows_HAW.argmax(dim=-1) == earlier
