"""The objective of conditional masked language models: a random number of places is hidden.

    n ~ U{1 … T},  M ⊂ {1 … T} with |M| = n,      L = − (T/n) Σ_{i∈M} log p(y_i | y_{∉M}, x)  −  log p(T | x)

Ghazvininejad et al. 2019, §2 and §3.1 (papers.bib: ghazvininejad2019mask).
Differs from the paper: a row counts as its T tokens do, however many of them are hidden (T/n), so that losses
of one text can be compared.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from unspool.objectives.hidden_places import HidingObjective, real


@dataclass(frozen=True)
class Masked(HidingObjective):
    """−log p of what stands at hidden places, of which there are a random number."""

    def weigh(self, lengths_N: Tensor, rate_N: Tensor, place_NT: Tensor) -> Tensor:
        """(N, T): T/n at the n hidden places."""
        counts_N = (rate_N * lengths_N).long() + 1
        padding_NT = ~real(lengths_N, place_NT.shape[1])
        order_NT = place_NT.masked_fill(padding_NT, 2.0).argsort(dim=1, stable=True).argsort(1)
        return (order_NT < counts_N[:, None]).float() * (lengths_N / counts_N)[:, None]
