"""One Transformer block: attention, then the feed-forward network, each on a residual branch.

Vaswani et al. 2017, §3.1 (papers.bib: vaswani2017attention).
"""

from __future__ import annotations

from torch import Tensor, nn

from unspool.nn.attention.key_values import KeyValues
from unspool.nn.attention.self_attention import SelfAttention
from unspool.nn.feed_forward import FeedForward
from unspool.nn.norms import NORMS
from unspool.nn.residual import PLACES


class Block(nn.Module):
    """x → x + attention → x + feed-forward, normalised where `norm_place` says."""

    def __init__(
        self,
        attention: SelfAttention,
        feed_forward: FeedForward,
        *,
        width: int,
        norm: str,
        norm_eps: float,
        norm_place: str,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.attention, self.feed_forward = attention, feed_forward
        self.attention_norm = NORMS[norm](width, norm_eps)
        self.feed_forward_norm = NORMS[norm](width, norm_eps)
        self.dropout = nn.Dropout(dropout)
        self.place = PLACES[norm_place]
        twice = norm_place == "both"
        self.attention_post_norm = NORMS[norm](width, norm_eps) if twice else nn.Identity()
        self.feed_forward_post_norm = NORMS[norm](width, norm_eps) if twice else nn.Identity()

    def forward(
        self,
        x_NTD: Tensor,
        rotary: tuple[Tensor, Tensor] | None = None,
        mask: Tensor | None = None,
        past: KeyValues | None = None,
    ) -> Tensor:
        """(N, T, D) → (N, T, D)."""
        x_NTD = self.place(
            x_NTD,
            self.attention_norm,
            lambda x: self._dropped(self.attention(x, rotary, mask, past)),
            self.attention_post_norm,
        )
        return self.place(
            x_NTD,
            self.feed_forward_norm,
            lambda x: self._dropped(self.feed_forward(x)),
            self.feed_forward_post_norm,
        )

    def _dropped(self, x: Tensor) -> Tensor:
        return self.dropout(x) if self.training else x
