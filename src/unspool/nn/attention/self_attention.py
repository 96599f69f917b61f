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

from unspool.nn.attention.key_values import KeyValues
from unspool.nn.attention.query_key_norm import QueryKeyNorm
from unspool.nn.attention.watched_attention import watched_attention
from unspool.nn.direct_call import DirectCall
from unspool.nn.linear import Linear
from unspool.nn.positions import rotate


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
