"""Multi-head attention of a decoder to what an encoder says.

    K, V = H_enc W^K, H_enc W^V,   α[k,t,s] = softmax_s( (x_t W^Q)[k]·K[k,s] / √I ),
    out_t = W^O concat_k Σ_s α[k,t,s] V[k,s]

Vaswani et al. 2017, §3.2.3 (papers.bib: vaswani2017attention). Keys know of positions only what the encoder
says: the order of its vectors does not matter. Shapes: B sources, each looked at by W rows side by side (the
hypotheses of a beam), T positions, S source tokens, H query heads, K key–value heads, G = H/K, I head width.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from unspool.nn.direct_call import DirectCall
from unspool.nn.linear import Linear


class CrossAttention(DirectCall):
    """Every position looks at the whole source."""

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
