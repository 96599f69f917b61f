"""Multi-head self-attention, with keys and values shared by groups of query heads.

    α[k,t₁,t₂] = softmax_{t₂}( Q[k,t₁]·K[k,t₂] / √I ),   out = W^O concat_k Σ_{t₂} α[k,t₁,t₂] V[k,t₂]

Vaswani et al. 2017, eq. 1 and §3.2.2 (papers.bib: vaswani2017attention); groups: Ainslie et al. 2023, §2.2
(papers.bib: ainslie2023gqa). Shapes: N rows, T new positions, S all positions, H query heads, K key–value
heads, G = H/K, I head width. `qkv` holds W^Q above W^K above W^V, so that one product serves all three.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from unspool.nn.attention_weights import watched_attention
from unspool.nn.linear import DirectCall, Linear
from unspool.nn.norms import RMSNorm
from unspool.nn.positions import rotate


class KeyValues:
    """Keys and values of N rows: (N, K, capacity, I), of which the first `length` columns are filled.

    The keys and values of one layer, kept while a sequence grows.

    Preallocated and doubled when full, so that a step writes one column and copies nothing.
    """

    def __init__(self, room: int = 0) -> None:
        self.length = 0
        self._room = room
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    def append(self, keys_NKTI: Tensor, values_NKTI: Tensor) -> tuple[Tensor, Tensor]:
        """Add T columns; returns all of them."""
        start, self.length = self.length, self.length + keys_NKTI.shape[2]
        if self._keys is None or self._values is None or self.length > self._keys.shape[2]:
            capacity = max(2 * start, self.length + self._room)
            self._keys = self._grown(self._keys, keys_NKTI, start, capacity)
            self._values = self._grown(self._values, values_NKTI, start, capacity)
        self._keys[:, :, start : self.length] = keys_NKTI
        self._values[:, :, start : self.length] = values_NKTI
        return self._keys[:, :, : self.length], self._values[:, :, : self.length]

    def append_one(self, keys_NKI: Tensor, values_NKI: Tensor) -> tuple[Tensor, Tensor]:
        """Add a single column; returns all of them."""
        start = self.length
        if self._keys is None or self._values is None or start == self._keys.shape[2]:
            return self.append(keys_NKI.unsqueeze(2), values_NKI.unsqueeze(2))
        self.length = start + 1
        self._keys.select(2, start).copy_(keys_NKI)
        self._values.select(2, start).copy_(values_NKI)
        return self._keys.narrow(2, 0, start + 1), self._values.narrow(2, 0, start + 1)

    def select(self, rows_M: Tensor, since: int = 0) -> None:
        """Reorder, repeat or drop rows, where rows are known to agree on the columns before `since`."""
        if self._keys is None or self._values is None:
            return
        if len(rows_M) == len(self._keys):
            for kept in (self._keys, self._values):
                kept[:, :, since : self.length] = kept[:, :, since : self.length].index_select(0, rows_M)
        else:
            # The columns that are still free are not worth copying.
            self._keys, self._values = (self._moved(kept, rows_M) for kept in (self._keys, self._values))

    def truncate(self, length: int) -> None:
        """Forget the columns from `length` on."""
        self.length = min(self.length, length)

    def _moved(self, kept: Tensor, rows_M: Tensor) -> Tensor:
        moved = kept.new_empty(len(rows_M), *kept.shape[1:])
        moved[:, :, : self.length] = kept[:, :, : self.length].index_select(0, rows_M)
        return moved

    @staticmethod
    def _grown(old: Tensor | None, new_NKTI: Tensor, filled: int, capacity: int) -> Tensor:
        rows, heads, _, width = new_NKTI.shape
        grown = torch.empty(rows, heads, capacity, width, dtype=new_NKTI.dtype, device=new_NKTI.device)
        if old is not None:
            grown[:, :, :filled] = old[:, :, :filled]
        return grown


KINDS = ("none", "head", "whole")


class QueryKeyNorm(DirectCall):
    """One gain for queries and one for keys: of a head's width, which all heads share, or of all of them.

    Queries and keys normalised before they meet, so that no score grows without bound.

        head  q ← RMSNorm(q), k ← RMSNorm(k), each head by itself  Dehghani et al. 2023, §2 (Qwen 3, Gemma 3)
        whole   the same over all heads at once                         OLMo 2

    papers.bib: dehghani2023scaling
    Differs from the paper: RMSNorm instead of LayerNorm, as the language models named have it.
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
    """Every position looks at itself and the positions before it; where not `causal`, at all of them."""

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
        if heads % kv_heads:
            raise ValueError(f"{heads} query heads cannot share {kv_heads} key–value heads: give a divisor")
        self.heads, self.kv_heads, self.head_width, self.causal = heads, kv_heads, head_width, causal
        self.qkv = Linear(width, (heads + 2 * kv_heads) * head_width, qkv_bias)
        self.out = Linear(heads * head_width, width, out_bias)
        self.norm = norm
        self.cap = cap
        """Scores are bent to stay below it, c·tanh(s/c) (Gemma 2)."""

    @property
    def projections(self) -> tuple[Linear, ...]:
        """What makes queries, keys and values of an input, in this order."""
        return (self.qkv,)

    def forward(
        self,
        x_NTD: Tensor,
        rotary: tuple[Tensor, Tensor] | None = None,
        mask: Tensor | None = None,
        past: KeyValues | None = None,
        looks: list[Tensor] | None = None,
    ) -> Tensor:
        """`mask` (N or 1, 1, T or 1, S) is False, or −∞, where a query may not look.

        α is computed by itself only where there is a list for it, `looks`; and then of a whole sequence.
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
        if looks is not None or self.cap is not None:
            q_NHTI, causal = q.transpose(1, 2), self.causal and mask is None and T > 1
            out_NHTI, alpha_NHTS = watched_attention(
                q_NHTI, k_NKSI, v_NKSI, I**-0.5, mask, causal=causal, cap=self.cap
            )
            if looks is not None:
                looks.append(alpha_NHTS)
            out = out_NHTI.transpose(1, 2).reshape(N, T, H * I)
        elif T == 1:
            # The G queries of a group look at the same keys: let them stand where positions stand.
            q_NKGI = q.reshape(N, K, H // K, I)
            out = F.scaled_dot_product_attention(q_NKGI, k_NKSI, v_NKSI, attn_mask=mask).reshape(N, 1, H * I)
        else:
            out_NHTI = F.scaled_dot_product_attention(
                q.transpose(1, 2),
                k_NKSI,
                v_NKSI,
                attn_mask=mask,
                is_causal=self.causal and mask is None,
                enable_gqa=H != K,
            )
            out = out_NHTI.transpose(1, 2).reshape(N, T, H * I)
        attended: Tensor = self.out(out)
        return attended

    def step(
        self, x_ND: Tensor, rotary: tuple[Tensor, Tensor] | None, mask: Tensor | None, past: KeyValues
    ) -> Tensor:
        """One token of every row: `forward` with as few operations as it takes."""
        N, H, K, I = len(x_ND), self.heads, self.kv_heads, self.head_width  # noqa: E741
        if self.cap is not None:
            turned = None if rotary is None else (rotary[0][None, None, None], rotary[1][None, None, None])
            seen: Tensor = self(x_ND[:, None], turned, mask, past)
            return seen[:, 0]
        q, k, v = self.qkv(x_ND).view(N, H + 2 * K, I).split_with_sizes((H, K, K), dim=1)
        if self.norm is not None:
            q, k = self.norm(q, k)
        if rotary is not None:
            q, k = rotate(q, *rotary), rotate(k, *rotary)
        k_NKSI, v_NKSI = past.append_one(k, v)
        # The G queries of a group look at the same keys: let them stand where positions stand.
        q_NKGI = q.reshape(N, K, H // K, I)
        out_NKGI = F.scaled_dot_product_attention(q_NKGI, k_NKSI, v_NKSI, attn_mask=mask)
        attended: Tensor = self.out(out_NKGI.reshape(N, H * I))
        return attended


# Attention: who listens to whom.


class CrossAttention(DirectCall):
    """Every position looks at the whole source.

    Multi-head attention of a decoder to what an encoder says.

        K, V = H_enc W^K, H_enc W^V,   α[k,t,s] = softmax_s( (x_t W^Q)[k]·K[k,s] / √I ),
        out_t = W^O concat_k Σ_s α[k,t,s] V[k,s]

    Vaswani et al. 2017, §3.2.3 (papers.bib: vaswani2017attention). Keys know of positions only what the
    encoder says: the order of its vectors does not matter. Shapes: B sources, each looked at by W rows side
    by side (the hypotheses of a beam), T positions, S source tokens, H query heads, K key–value heads, G =
    H/K, I head width.
    """

    def __init__(
        self, width: int, heads: int, kv_heads: int, head_width: int, *, qkv_bias: bool, out_bias: bool
    ) -> None:
        super().__init__()
        if heads % kv_heads:
            raise ValueError(f"{heads} query heads cannot share {kv_heads} key–value heads: give a divisor")
        self.heads, self.kv_heads, self.head_width = heads, kv_heads, head_width
        self.query = Linear(width, heads * head_width, qkv_bias)
        self.kv = Linear(width, 2 * kv_heads * head_width, qkv_bias)
        self.out = Linear(heads * head_width, width, out_bias)

    def keys_values(self, memory_BSD: Tensor) -> tuple[Tensor, Tensor]:
        """(B, S, D) → K and V, (B, K, S, I) each: computed once for each source."""
        B, S, _ = memory_BSD.shape
        kv = self.kv(memory_BSD).view(B, S, 2, self.kv_heads, self.head_width)
        k_BSKI, v_BSKI = kv.unbind(2)
        return k_BSKI.transpose(1, 2), v_BSKI.transpose(1, 2)

    def forward(self, x: Tensor, k_BKSI: Tensor, v_BKSI: Tensor, padding: Tensor | None = None) -> Tensor:
        """(N, T, D) or (N, D) → the same; rows i·W … i·W + W − 1 look at source i, W = N/B.

        `padding` (B, 1, 1, S) is −∞ on what is no part of a source.
        """
        q_BKQI = self._queries(x, len(k_BKSI))
        return self._joined(F.scaled_dot_product_attention(q_BKQI, k_BKSI, v_BKSI, attn_mask=padding), x)

    def watched(
        self, x: Tensor, k_BKSI: Tensor, v_BKSI: Tensor, padding: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The same, and α, averaged over the heads: (N, T, S) or (N, S)."""
        alpha_BKQS = self._alpha(x, k_BKSI, padding)
        mean_BQS, group = alpha_BKQS.mean(dim=1), self.heads // self.kv_heads
        if group > 1:
            mean_BQS = mean_BQS.view(len(k_BKSI), -1, group, k_BKSI.shape[2]).mean(dim=2)
        return self._joined(alpha_BKQS @ v_BKSI, x), mean_BQS.view(*x.shape[:-1], k_BKSI.shape[2])

    def watched_heads(
        self, x_NTD: Tensor, k_NKSI: Tensor, v_NKSI: Tensor, padding: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The same, and α of every head: (N, H, T, S), where each row has a source of its own."""
        alpha_NKQS = self._alpha(x_NTD, k_NKSI, padding)
        N, T, _ = x_NTD.shape
        alpha_NKTGS = alpha_NKQS.view(N, self.kv_heads, T, self.heads // self.kv_heads, -1)
        alpha_NHTS = alpha_NKTGS.transpose(2, 3).flatten(1, 2)
        return self._joined(alpha_NKQS @ v_NKSI, x_NTD), alpha_NHTS

    def _alpha(self, x: Tensor, k_BKSI: Tensor, padding: Tensor | None) -> Tensor:
        score_BKQS = (self._queries(x, len(k_BKSI)) * self.head_width**-0.5) @ k_BKSI.transpose(2, 3)
        alpha_BKQS: Tensor = (score_BKQS if padding is None else score_BKQS + padding).softmax(dim=-1)
        return alpha_BKQS

    def _queries(self, x: Tensor, B: int) -> Tensor:
        """(B, K, Q, I): the W·T·G queries that look at the same keys stand side by side."""
        K, I = self.kv_heads, self.head_width  # noqa: E741
        query: Tensor = self.query(x).view(B, -1, K, self.heads // K, I)
        return query.transpose(1, 2).reshape(B, K, -1, I)

    def _joined(self, out_BKQI: Tensor, x: Tensor) -> Tensor:
        B, K, _, I = out_BKQI.shape  # noqa: E741
        grouped = out_BKQI.reshape(B, K, -1, self.heads // K, I).transpose(1, 2)
        joined: Tensor = self.out(grouped.reshape(*x.shape[:-1], self.heads * I))
        return joined
