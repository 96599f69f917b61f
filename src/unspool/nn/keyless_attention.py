"""Self-attention without a key matrix: one matrix for each head scores pairs of positions.

    α[k,t₁,t₂] = softmax_{t₂}( x_{t₁}ᵀ W̃[k] x_{t₂} + u[k]·x_{t₂} ),   W̃[k] = W^Q[k]ᵀ W^K[k] / √I
    out = W^O concat_k Σ_{t₂} α[k,t₁,t₂] V[k,t₂]

McAllester's problems on attention, 5 (papers.bib: mcallester2020problems). A head has J² weights in place of
2·I·J, as many at I = J/2, and can do whatever a query and a key matrix can; u is what is left of the bias of
queries, for that of keys adds the same to all t₂. (The worked solution of 5(a) prints L(t₁, J₂) where
L(t₂, J₂) is meant.)

The inputs x themselves are the keys, the same for all heads: what has to be kept of a token is J numbers, and
its values. Shapes: N rows, T new positions, S all positions, H heads, K heads of values, J width, I width of
a head's values. Symbols: J `width`, W̃ and u the weight and bias of `query`, whose row k·J + j is row j of
W̃[k]ᵀ.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unspool.nn.attention import KeyValues
from unspool.nn.attention_weights import watched_attention
from unspool.nn.linear import DirectCall, Linear


class KeylessAttention(DirectCall):
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
    ) -> None:
        super().__init__()
        self.width, self.heads, self.kv_heads, self.head_width = width, heads, kv_heads, head_width
        self.causal, self.norm = causal, None
        self.query = Linear(width, heads * width, qkv_bias)
        # As if it were the product of two matrices that begin as torch's do, each entry uniform in ±1/√J.
        nn.init.normal_(self.query.weight, std=1 / (3 * width))
        self.value = Linear(width, kv_heads * head_width, qkv_bias)
        self.out = Linear(heads * head_width, width, out_bias)

    @property
    def projections(self) -> tuple[Linear, ...]:
        """What makes queries and values of an input, in this order."""
        return (self.query, self.value)

    def forward(
        self,
        x_NTJ: Tensor,
        rotary: tuple[Tensor, Tensor] | None = None,
        mask: Tensor | None = None,
        past: KeyValues | None = None,
        looks: list[Tensor] | None = None,
    ) -> Tensor:
        """`mask` (N or 1, 1, T or 1, S) is False, or −∞, where a query may not look; α goes to `looks`."""
        refuse_rotary(rotary is not None)
        N, T, J = x_NTJ.shape
        q_NHTJ = self.query(x_NTJ).view(N, T, self.heads, J).transpose(1, 2)
        k_N1SJ, v_NKSI = x_NTJ.unsqueeze(1), self.value(x_NTJ).view(N, T, self.kv_heads, -1).transpose(1, 2)
        if past is not None:
            k_N1SJ, v_NKSI = past.append(k_N1SJ, v_NKSI)
        causal = self.causal and mask is None and T > 1
        if looks is None:
            out_NHTI = self._attended(q_NHTJ, k_N1SJ, v_NKSI, mask, causal)
        else:
            out_NHTI, alpha_NHTS = watched_attention(q_NHTJ, k_N1SJ, v_NKSI, 1.0, mask, causal=causal)
            looks.append(alpha_NHTS)
        attended: Tensor = self.out(out_NHTI.transpose(1, 2).reshape(N, T, -1))
        return attended

    def step(
        self, x_NJ: Tensor, rotary: tuple[Tensor, Tensor] | None, mask: Tensor | None, past: KeyValues
    ) -> Tensor:
        """One token of every row."""
        return self.forward(x_NJ.unsqueeze(1), rotary, mask, past).squeeze(1)

    def _attended(
        self, q_NHTJ: Tensor, k_N1SJ: Tensor, v_NKSI: Tensor, mask: Tensor | None, causal: bool
    ) -> Tensor:
        H = self.heads
        k_NHSJ = k_N1SJ.expand(-1, H, -1, -1)
        v_NHSI = v_NKSI.repeat_interleave(H // self.kv_heads, dim=1) if self.kv_heads < H else v_NKSI
        return F.scaled_dot_product_attention(
            q_NHTJ, k_NHSJ, v_NHSI, attn_mask=mask, is_causal=causal, scale=1.0
        )


def refuse_rotary(rotary: bool) -> None:
    """Rotary positions turn queries and keys apart, by their own places: there must be both."""
    if rotary:
        raise ValueError(
            "keys cannot be left out under rotary positions: Q[t₁]ᵀ R(t₁ − t₂) K[t₂] has another matrix for "
            "every distance, and no single W̃; choose positions that are added (sinusoidal, learned) or none"
        )


@torch.no_grad()
def joined(query_HIJ: Tensor, key_HIJ: Tensor, bias_HI: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
    """W̃ (H, J, J) and u (H, J) of query and key matrices, and of the queries' bias."""
    scale = query_HIJ.shape[1] ** -0.5
    joined_HJJ = query_HIJ.transpose(1, 2) @ key_HIJ * scale
    return joined_HJJ, None if bias_HI is None else (bias_HI.unsqueeze(1) @ key_HIJ).squeeze(1) * scale


@torch.no_grad()
def parted(
    joined_HJJ: Tensor, bias_HJ: Tensor | None, rank: int, head_width: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    """W^Q, W^K (H, I, J) and the queries' bias (H, I) whose W̃ is the nearest of that rank.

    Eckart & Young 1936 (papers.bib: eckart1936approximation): the largest singular values stay. u stands
    below W̃ in one matrix (J + 1, J), so that both keep the same keys. I is `head_width`, filled up with
    zeros.
    """
    H, J, _ = joined_HJJ.shape
    below_H1J = joined_HJJ.new_zeros(H, 1, J) if bias_HJ is None else bias_HJ.unsqueeze(1)
    u, sigma_HR, vt = torch.linalg.svd(
        torch.cat([joined_HJJ, below_H1J], dim=1).double(), full_matrices=False
    )
    root_HR = (sigma_HR[:, :rank] * head_width**0.5).sqrt()  # both get half, and the queries' scale is undone
    left_HRJ = (u[:, :, :rank] * root_HR.unsqueeze(1)).transpose(1, 2)
    right_HRJ = vt[:, :rank] * root_HR.unsqueeze(2)

    def filled(it: Tensor) -> Tensor:
        wide = torch.zeros(H, head_width, it.shape[2], dtype=joined_HJJ.dtype, device=it.device)
        wide[:, : it.shape[1]] = it
        return wide

    query = filled(left_HRJ)
    return query[..., :J], filled(right_HRJ), None if bias_HJ is None else query[..., J]
