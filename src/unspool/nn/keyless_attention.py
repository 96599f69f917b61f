"""Keyless self-attention: one matrix per head scores pairs of positions directly, without a key matrix.

    α[k,t₁,t₂] = softmax_{t₂}( x_{t₁}ᵀ W̃[k] x_{t₂} + u[k]·x_{t₂} ),   W̃[k] = W^Q[k]ᵀ W^K[k] / √I
    out = W^O concat_k Σ_{t₂} α[k,t₁,t₂] V[k,t₂]

McAllester's problems on attention, 5 (papers.bib: mcallester2020problems). A head has J² weights instead of
2·I·J and can represent any query and key matrix; u is the remainder of the query bias (the key bias adds
the same to all t₂). The worked solution of 5(a) prints L(t₁, J₂) instead of L(t₂, J₂).

The inputs x are the keys of all heads, so the cache holds J numbers per token, and its values. Shapes: N
rows, T new positions, S all positions, H heads, K value heads, J width, I width of a head's values.
Symbols: J `width`, W̃ and u the weight and bias of `query`, whose row k·J + j is row j of W̃[k]ᵀ.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unspool.nn.attention import KVCache, attention_with_weights
from unspool.nn.linear import DirectCall, Linear


class KeylessAttention(DirectCall):
    """Self-attention without keys, causal or bidirectional."""

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
    ) -> None:
        super().__init__()
        self.width, self.heads, self.kv_heads, self.head_width = width, heads, kv_heads, head_width
        self.causal, self.norm = causal, None
        self.query = Linear(width, heads * width, qkv_bias)
        # The variance of a product of two matrices with torch's default initialisation, uniform in ±1/√J.
        nn.init.normal_(self.query.weight, std=1 / (3 * width))
        self.value = Linear(width, kv_heads * head_width, qkv_bias)
        self.out = Linear(heads * head_width, width, out_bias)

    @property
    def projections(self) -> tuple[Linear, ...]:
        """The layers that compute queries and values, in this order."""
        return (self.query, self.value)

    def forward(
        self,
        x_NTJ: Tensor,
        rotary: tuple[Tensor, Tensor] | None = None,
        mask: Tensor | None = None,
        past: KVCache | None = None,
        attentions: list[Tensor] | None = None,
    ) -> Tensor:
        """`mask` (N or 1, 1, T or 1, S) is False or −∞ on masked positions; α is appended to `attentions`."""
        assert rotary is None
        N, T, J = x_NTJ.shape
        q_NHTJ = self.query(x_NTJ).view(N, T, self.heads, J).transpose(1, 2)
        k_N1SJ, v_NKSI = x_NTJ.unsqueeze(1), self.value(x_NTJ).view(N, T, self.kv_heads, -1).transpose(1, 2)
        if past is not None:
            k_N1SJ, v_NKSI = past.append(k_N1SJ, v_NKSI)
        causal = self.causal and mask is None and T > 1
        if attentions is None:
            k_NHSJ = k_N1SJ.expand(-1, self.heads, -1, -1)
            v_NHSI = v_NKSI.repeat_interleave(self.heads // self.kv_heads, dim=1)
            out_NHTI = F.scaled_dot_product_attention(
                q_NHTJ, k_NHSJ, v_NHSI, attn_mask=mask, is_causal=causal, scale=1.0
            )
        else:
            out_NHTI, alpha_NHTS = attention_with_weights(q_NHTJ, k_N1SJ, v_NKSI, 1.0, mask, causal=causal)
            attentions.append(alpha_NHTS)
        return self.out(out_NHTI.transpose(1, 2).reshape(N, T, -1))


def check_no_rotary(rotary: bool) -> None:
    """Rotary positions rotate queries and keys separately, so they need both."""
    if rotary:
        raise ValueError(
            "keyless attention does not work with rotary positions: Q[t₁]ᵀ R(t₁ − t₂) K[t₂] has a W̃ per "
            "distance; use positions that are added (sinusoidal, learned) or none"
        )


@torch.no_grad()
def join_query_key(
    query_HIJ: Tensor, key_HIJ: Tensor, bias_HI: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """W̃ (H, J, J) and u (H, J) from query and key matrices and the query bias."""
    scale = query_HIJ.shape[1] ** -0.5
    joined_HJJ = query_HIJ.transpose(1, 2) @ key_HIJ * scale
    return joined_HJJ, None if bias_HI is None else (bias_HI.unsqueeze(1) @ key_HIJ).squeeze(1) * scale


@torch.no_grad()
def split_query_key(
    joined_HJJ: Tensor, bias_HJ: Tensor | None, rank: int, head_width: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    """W^Q, W^K (H, I, J) and the query bias (H, I) whose W̃ is the best approximation of this rank.

    Eckart & Young 1936 (papers.bib: eckart1936approximation): keep the largest singular values. u is
    stacked below W̃ in one matrix (J + 1, J), so that both share the same keys. Rows are padded with zeros
    to I = `head_width`.
    """
    H, J, _ = joined_HJJ.shape
    below_H1J = joined_HJJ.new_zeros(H, 1, J) if bias_HJ is None else bias_HJ.unsqueeze(1)
    u, sigma_HR, vt = torch.linalg.svd(
        torch.cat([joined_HJJ, below_H1J], dim=1).double(), full_matrices=False
    )
    root_HR = (sigma_HR[:, :rank] * head_width**0.5).sqrt()  # split evenly; undoes the scaling of queries
    left_HRJ = (u[:, :, :rank] * root_HR.unsqueeze(1)).transpose(1, 2)
    right_HRJ = vt[:, :rank] * root_HR.unsqueeze(2)

    query, key = (pad_heads(it, head_width).to(joined_HJJ.dtype) for it in (left_HRJ, right_HRJ))
    return query[..., :J], key, None if bias_HJ is None else query[..., J]


def pad_heads(x_HIJ: Tensor, width: int) -> Tensor:
    """Pad the rows of each head with zeros to this width."""
    return F.pad(x_HIJ, (0, 0, 0, width - x_HIJ.shape[1]))
