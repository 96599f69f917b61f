"""Top-H: keep as many of the most probable tokens as a share of the entropy allows.

    keep the largest k with  H(q_k) ≤ α · H(p),     q_k = the k most probable tokens, renormalised
    H(q_k) = log s_k + h_k/s_k,   s_k = Σ_{r≤k} p₍ᵣ₎,   h_k = −Σ_{r≤k} p₍ᵣ₎ log p₍ᵣ₎

Potraghloo, Azizi, Kundu & Pedram 2025 (the greedy answer to entropy-constrained mass maximisation; α = 0.4).
papers.bib: potraghloo2025toph

H(q_k) never falls with k, since no token joins that is more probable than those before it: the ranking can be
cut at the first violation. The most probable token always stays. α = 1 keeps everything.
Ties: equal probabilities are ranked by id, the lower first.
Differs from Hugging Face (and from the authors' code): these compare h_k, the entropy terms without the
renormalisation of q_k, with α·H, look at the 100 most probable tokens only and take H of those.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from unspool.decode.arguments import number
from unspool.decode.transforms.rank_cuts import HEAD, ascending, edges, first
from unspool.decode.transforms.scores import alive
from unspool.decode.transforms.truncation import Truncation

ROUNDING = 1e-9
"""Nats by which rounding may lift H(q_k) over a bound that it equals (uniform rows, α = 1)."""


@dataclass(frozen=True)
class TopH(Truncation):
    """Keep the most probable tokens while their entropy is at most alpha times the row's."""

    alpha: float = 0.4

    def __post_init__(self) -> None:
        advice = "The paper uses 0.4; 1 keeps everything."
        number(self, "alpha", above=0, at_most=1, advice=advice)

    def keeps(self, logp_NV: Tensor) -> Tensor:
        """True for the head of each row that the entropy bound allows."""
        if self.alpha == 1:
            return alive(logp_NV)
        exact_NV = logp_NV.double().log_softmax(dim=-1)
        term_NV = (exact_NV.softmax(dim=-1) * exact_NV).nan_to_num(nan=0.0)
        bound_N1 = ROUNDING - self.alpha * term_NV.sum(dim=-1, keepdim=True)

        def head(exact_NK: Tensor, _: Tensor) -> Tensor:
            count_N = _fitting(exact_NK, bound_N1)
            return count_N.masked_fill(count_N == HEAD, 0)

        def whole(rows_R: Tensor) -> tuple[Tensor, Tensor]:
            exact_RV = ascending(exact_NV[rows_R]).flip(-1)
            count_R = _fitting(exact_RV, bound_N1[rows_R])
            return exact_RV.gather(1, count_R[:, None] - 1), count_R

        return first(exact_NV, *edges(exact_NV, head, whole)) & alive(logp_NV)


def _fitting(logp_NK: Tensor, bound_N1: Tensor) -> Tensor:
    """How many of the first tokens have, renormalised, an entropy within the bound; at least one."""
    p_NK = logp_NK.exp()
    mass_NK = p_NK.cumsum(dim=-1)
    entropy_NK = mass_NK.log() - (p_NK * logp_NK).nan_to_num(nan=0.0).cumsum(dim=-1) / mass_NK
    return (entropy_NK <= bound_N1).sum(dim=-1).clamp(min=1)
