"""A weighted sum of objectives: a main one and auxiliary ones, each enabled from some update on.

    L = L_main + Σ_i λ_i · L_i · [update ≥ begin_i]

McAllester's problems on attention, 1(b, c), for losses on attention (papers.bib: mcallester2020problems);
Wu et al. 2016, eq. 9, for expected reward beside likelihood (papers.bib: wu2016google).

L_main and each L_i is a mean over an update: the sum over all batches and processes divided by the sum of
its weights, which is known before the first pass (`for_update`). The gradient is that of one big batch.

Disabled objectives cost nothing. Enabled ones share one forward pass (`SharedPass`). The clock of an
objective starts when it is enabled. If stats have the same name, those of the main objective are kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from unspool.arguments import Checked, integer, number
from unspool.data.batch import Batch
from unspool.interfaces import (
    AttentionReading,
    AttentionStack,
    Clock,
    Loss,
    Objective,
    PreparedLoss,
    Trainable,
)


class SharedPass:
    """A model wrapper that runs one forward pass over `batch` for several objectives.

        h(x), α(x) = model(x)    computed at the first request for the batch, then cached

    Cross-entropy needs hidden vectors and an attention loss α, of the same batch with the same dropout. α
    is computed only if `with_attention`. A pass without gradients, such as the first one of scheduled
    sampling, is not cached. A masked model reads the batch as masked by the main objective, which must run
    first.
    """

    def __init__(self, model: Any, batch: Batch, *, with_attention: bool) -> None:
        self._model, self._batch, self._with_attention = model, batch, with_attention
        self._hidden: Tensor | None = None
        self._stacks: tuple[AttentionStack, ...] = ()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def _shares(self, batch: Batch) -> bool:
        """True if the pass over this batch is the shared one."""
        return batch is self._batch and (self._hidden is not None or torch.is_grad_enabled())

    def hidden_for(self, batch: Batch) -> Tensor:
        if not self._shares(batch):
            return self._model.hidden_for(batch)
        if self._hidden is None and self._with_attention:
            self._hidden, self._stacks = self._model.attention_reading.read_attention(batch)
        elif self._hidden is None:
            self._hidden = self._model.hidden_for(batch)
        assert self._hidden is not None
        return self._hidden

    @property
    def infilling(self) -> Any:
        """This wrapper, or None if the model does not support it."""
        return None if self._model.infilling is None else self

    def read_hidden(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """`read_hidden` of the model on the masked batch, which becomes the shared pass."""
        stacks: list[AttentionStack] = []
        read = self._model.infilling.read_hidden
        found: tuple[Tensor, Tensor | None] = read(batch, stacks) if self._with_attention else read(batch)
        self._hidden, self._stacks = found[0], tuple(stacks)
        return found

    @property
    def attention_reading(self) -> Any:
        """This wrapper, or None if the model does not support it."""
        return None if self._model.attention_reading is None else self

    def read_attention(self, batch: Batch) -> tuple[Tensor, tuple[AttentionStack, ...]]:
        if self._shares(batch) and self._with_attention:
            return self.hidden_for(batch), self._stacks
        reading: AttentionReading = self._model.attention_reading
        return reading.read_attention(batch)


@dataclass(frozen=True)
class AuxiliarySettings(Checked):
    """The weight and start of an auxiliary objective; all other keys belong to the objective."""

    weight: float = number(1.0, at_least=0)
    """λ, the factor of the loss; the main objective has 1. With 0 it is not computed."""
    begin: int = integer(0, at_least=0)
    """The update at which it is enabled."""


@dataclass(frozen=True)
class WeightedSum(Objective):
    """The main objective and auxiliary ones."""

    main: Objective
    others: tuple[tuple[Objective, AuxiliarySettings], ...]

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """All of them, the main one first."""
        return (self.main, *(objective for objective, _ in self.others))

    @property
    def own_batches(self) -> bool:
        return any(objective.own_batches for objective in self.objectives)

    @property
    def needs_row_seeds(self) -> bool:
        return any(objective.needs_row_seeds for objective in self.objectives)

    @property
    def masks_tokens(self) -> bool:
        return self.main.masks_tokens

    @property
    def validation(self) -> Objective | None:
        return self.main.validation

    @property
    def uses_reward(self) -> bool:
        return self.main.uses_reward or any(it.uses_reward and share.weight > 0 for it, share in self.others)

    def check(self, model: Trainable) -> None:
        for objective in self.objectives:
            objective.check(model)

    def __call__(self, model: Trainable, batch: Batch, clock: Clock) -> Loss:
        """The sum over the only batch of an update."""
        return self.for_update(model, [(batch, clock)], list)(model, batch, clock)

    def for_update(
        self,
        model: Trainable,
        batches: Sequence[tuple[Batch, Clock]],
        sums: Callable[[Sequence[float]], Sequence[float]],
    ) -> Objective:
        """The sum for several batches of one update: each part is divided by its weight over all of them."""
        now = batches[0][1].update
        active = [
            (objective, share) for objective, share in self.others if share.weight > 0 and now >= share.begin
        ]
        if not active:
            return self.main.for_update(model, batches, sums)
        parts = [(self.main, AuxiliarySettings()), *active]
        prepared = [
            [
                objective.prepare(model, batch, replace(clock, update=now - share.begin))
                for objective, share in parts
            ]
            for batch, clock in batches
        ]
        weights = sums([sum(losses[at].weight for losses in prepared) for at in range(len(parts))])
        scales = [weights[0] / weight if weight else 0.0 for weight in weights]
        return _PreparedSum(parts, scales, [batch for batch, _ in batches], prepared)


@dataclass(frozen=True)
class _PreparedSum(Objective):
    """A weighted sum for the batches of one update."""

    parts: Sequence[tuple[Objective, AuxiliarySettings]]
    """The main objective and the enabled ones."""
    scales: Sequence[float]
    """The weight of the main objective divided by that of each part, over the whole update."""
    batches: Sequence[Batch]
    prepared: Sequence[Sequence[PreparedLoss]]

    def __call__(self, model: Trainable, batch: Batch, clock: Clock) -> Loss:  # noqa: ARG002
        """Main + Σ λ · scale · loss of one of these batches, to be divided by the update's main weight."""
        at = next(at for at, other in enumerate(self.batches) if other is batch)
        shared: Any = SharedPass(model, batch, with_attention=any(it.needs_attention for it, _ in self.parts))
        total: Any = 0.0
        weight, stats = 0.0, dict[str, float]()
        for (part, share), scale, prepared in zip(self.parts, self.scales, self.prepared[at], strict=True):
            loss = prepared.compute(model if part.own_batches else shared)
            if not math.isclose(loss.weight, prepared.weight, rel_tol=1e-6):
                raise ValueError(
                    f"{type(part).__name__}.prepare returned the weight {prepared.weight}, but its "
                    f"loss has {loss.weight}: override prepare, so that both are the same"
                )
            if part is self.parts[0][0]:
                total, weight, stats = loss.total, loss.weight, dict(loss.stats)
            else:
                total = total + share.weight * scale * loss.total
                stats = {name: scale * value for name, value in loss.stats.items()} | stats
        return Loss(total, weight, stats)
