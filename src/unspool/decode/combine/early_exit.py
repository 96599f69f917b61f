"""DoLa: contrast the predictions of a model with those of one of its early layers.

    log p̂(i) = F(i) − logsumexp_j F(j),   F(i) = log q_N(i) − log q_M(i)   if q_N(i) ≥ α max_j q_N(j), else −∞
    M = argmax_{ℓ ∈ candidates} JSD(q_N ‖ q_ℓ)

Chuang et al. 2024, §2.2 (the choice of the layer) and §2.3 (the contrast) (papers.bib: chuang2024dola).
q_ℓ is the distribution after ℓ blocks, N their number; the layer is chosen for every row and step. A single
candidate is the static form of the paper.

    low     even layers from 2 up to N/2 (to 20 in models of more than 40)   for longer answers and reasoning
    high    every second layer from N/2 (from N − 20) up to N               for short factual answers

Differs from the paper: "low" excludes the embedding, layer 0, as the paper does for tied embeddings; to
include it, give the layers: (0, 2, 4). Differs from Hugging Face: the layer is chosen for each row, not for
the batch; the divergence is the Jensen–Shannon divergence, while theirs swaps the arguments of KL; the last
norm is applied before every exit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from unspool.decode.arguments import as_int, items, number, set_fields
from unspool.decode.combine.contrast import ALPHA, FLOOR, plausible
from unspool.decode.combine.lockstep import Lockstep, check_model
from unspool.interfaces import Step, StepModel


@dataclass(frozen=True)
class EarlyExit(Lockstep):
    """EarlyExit(model): a model contrasted with its early layers."""

    model: StepModel
    layers: str | tuple[int, ...] = "low"
    """The candidates: "low", "high", or numbers of blocks; a single one is static."""
    alpha: float = number(0.1, **ALPHA)
    """Minimum probability of a token as a share of the most probable one."""

    candidates: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """The candidate layers."""
    exits_model: StepModel = field(init=False, repr=False, compare=False)
    """The model whose Steps contain these exits."""

    def __post_init__(self) -> None:
        check_model(self.model)
        if isinstance(self.layers, str) and self.layers not in BUCKETS:
            raise ValueError(
                f"layers={self.layers!r} is unknown: choose from {', '.join(sorted(BUCKETS))}, "
                "or give numbers of blocks such as (2, 4)"
            )
        layered = self.model.layered
        if layered is None:
            raise TypeError(
                f"{type(self.model).__name__} does not return predictions of early layers: "
                "use a `layered` model, such as a TransformerLM"
            )
        if isinstance(self.layers, str):
            candidates = BUCKETS[self.layers](layered.layers)
        else:
            advice = 'Count blocks: 1 is after the first of them. A name such as "low" chooses several.'
            layers = items("EarlyExit.layers", self.layers, "numbers of blocks such as (2, 4)")
            candidates = tuple(
                as_int("EarlyExit.layers", layer, at_least=0, advice=advice) for layer in layers
            )
            set_fields(self, layers=candidates)
        set_fields(self, candidates=candidates, exits_model=layered.exits(candidates))
        super().__post_init__()

    def parts(self) -> tuple[StepModel, ...]:
        return (self.exits_model,)

    def join(self, steps: Sequence[Step]) -> Step:
        (step,) = steps
        last_NV, exits_NEV = step.logp_NV, step.exits_NEV
        assert exits_NEV is not None, "exits() promised exits_NEV"
        early_NV = exits_NEV[:, 0]
        if exits_NEV.shape[1] > 1:
            farthest_N = divergence(last_NV[:, None], exits_NEV).argmax(dim=-1)
            early_NV = exits_NEV[torch.arange(len(exits_NEV), device=exits_NEV.device), farthest_N]
        difference_NV = last_NV - early_NV.clamp(min=FLOOR)
        score_NV = difference_NV.masked_fill(~plausible(last_NV, self.alpha), -math.inf)
        log_norm_N = score_NV.logsumexp(dim=-1)
        logp_NV = torch.log_softmax(score_NV, dim=-1)
        return Step(logp_NV, step.hidden_ND, step.attention, log_norm_N=log_norm_N)


def divergence(logp: Tensor, logq: Tensor) -> Tensor:
    """(…, V), (…, V) → (…): JSD(p ‖ q) = ½ KL(p ‖ m) + ½ KL(q ‖ m), m = ½ (p + q)."""
    logm = torch.logaddexp(logp, logq) - math.log(2)

    def kl(loga: Tensor) -> Tensor:
        # 0 log 0 is 0.
        return torch.where(loga > -math.inf, loga.exp() * (loga - logm), 0.0).sum(dim=-1)

    return (kl(logp) + kl(logq)) / 2


def low(depth: int) -> tuple[int, ...]:
    """The lower half; for a shallow model the second layer, or the one before the last."""
    return tuple(range(2, min(depth // 2, 20), 2)) or (min(2, depth - 1),)


def high(depth: int) -> tuple[int, ...]:
    """The upper half without the last layer."""
    return tuple(range(max(depth // 2, depth - 20), depth, 2))


BUCKETS: dict[str, Callable[[int], tuple[int, ...]]] = {"low": low, "high": high}
