"""Several objectives at once: a main one, and others beside it by weight, each switched on at its update.

    L = L_main + Σ_i λ_i · L_i · [update ≥ begin_i]

McAllester's problems on attention, 1(b, c), for losses on attention (papers.bib: mcallester2020problems);
Wu et al. 2016, eq. 9, for expected reward beside likelihood (papers.bib: wu2016google).

L_main and each L_i is a mean over an update: its sum over all batches and processes, divided by the sum of
its weights there, which is known before the first pass (`for_update`). The gradient is that of one big batch.

Whatever is off costs nothing: the main objective is called as if there were no other. What is on shares one
forward pass over the batch (`shared_pass`). An objective's clock begins when it is switched on. Stats of the
main objective keep their names; what the others say under names of the main one is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from unspool.data.batch import Batch
from unspool.interfaces import AttentionStack, Clock, Loss, Objective, PreparedLoss, Trainable


class SharedPass:
    """A model that reads `batch` once, however often it is asked; in all else the model itself.

    One forward pass for all that is minimised: what several objectives ask of a model is computed once.

        h(x), α(x) = model(x)    the first time that somebody asks for the batch, and looked up from then on

    A cross-entropy asks for hidden vectors, a loss on attention for α, another loss for hidden vectors again:
    all of the same batch, with the same dropout. Where anybody wants α, the pass is one that tells. A pass
    without gradients, such as the first one of scheduled sampling, is not kept. A model that fills hidden
    places reads the batch as the objective has hidden them, which is to ask first.
    """

    def __init__(self, model: Any, batch: Batch, *, watched: bool) -> None:
        self._model, self._batch, self._watched = model, batch, watched
        self._hidden: Tensor | None = None
        self._stacks: tuple[AttentionStack, ...] = ()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def _shares(self, batch: Batch) -> bool:
        """Whether the pass over this batch is the shared one."""
        return batch is self._batch and (self._hidden is not None or torch.is_grad_enabled())

    def hidden_for(self, batch: Batch) -> Tensor:
        """The model's own."""
        if not self._shares(batch):
            hidden_NUD: Tensor = self._model.hidden_for(batch)
            return hidden_NUD
        if self._hidden is None and self._watched:
            self._hidden, self._stacks = self._model.attention_reading.read_attention(batch)
        elif self._hidden is None:
            self._hidden = self._model.hidden_for(batch)
        assert self._hidden is not None
        return self._hidden

    @property
    def infilling(self) -> Any:
        """Itself, where the model has the ability."""
        return None if self._model.infilling is None else self

    def read_hidden(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """The model's own, of the batch with hidden places: that is the pass that all share."""
        stacks: list[AttentionStack] = []
        read = self._model.infilling.read_hidden
        found: tuple[Tensor, Tensor | None] = read(batch, stacks) if self._watched else read(batch)
        self._hidden, self._stacks = found[0], tuple(stacks)
        return found

    @property
    def attention_reading(self) -> Any:
        """Itself, where the model has the ability."""
        return None if self._model.attention_reading is None else self

    def read_attention(self, batch: Batch) -> tuple[Tensor, tuple[AttentionStack, ...]]:
        """The model's own."""
        if self._shares(batch) and self._watched:
            return self.hidden_for(batch), self._stacks
        found: tuple[Tensor, tuple[AttentionStack, ...]] = self._model.attention_reading.read_attention(batch)
        return found


@dataclass(frozen=True)
class Share:
    """How much an objective counts beside the main one, and from when; all other keys are the objective's."""

    weight: float = 1.0
    """λ: what it is multiplied by; the main objective has 1. With 0 it is not computed."""
    begin: int = 0
    """Updates before it is switched on."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.weight < math.inf:
            raise ValueError(f"weight={self.weight} must be at least 0, and finite")
        if self.begin < 0:
            raise ValueError(f"begin={self.begin} must be at least 0: the update at which it is switched on")


@dataclass(frozen=True)
class WeightedSum(Objective):
    """The main objective, and others beside it."""

    main: Objective
    others: tuple[tuple[Objective, Share], ...]

    @property
    def own_batches(self) -> bool:
        """Whether one of them does."""
        return any(it.own_batches for it in (self.main, *(it for it, _ in self.others)))

    @property
    def draws(self) -> bool:
        """Whether one of them does."""
        return any(it.draws for it in (self.main, *(it for it, _ in self.others)))

    @property
    def hides(self) -> bool:
        """Whether the main one does."""
        return self.main.hides

    @property
    def validation(self) -> Objective | None:
        """The main one's."""
        return self.main.validation

    @property
    def rewarded(self) -> bool:
        """Whether one of them does, and is ever on."""
        return self.main.rewarded or any(it.rewarded and share.weight > 0 for it, share in self.others)

    def check(self, model: Trainable) -> None:
        """Refuse a model that one of them cannot teach."""
        for objective in (self.main, *(it for it, _ in self.others)):
            objective.check(model)

    def __call__(self, model: Trainable, batch: Batch, clock: Clock) -> Loss:
        """The sum over the batch, which is all of its update."""
        parts = self.parts(clock)
        if len(parts) == 1:
            return self.main(model, batch, clock)
        reader = self.reader(model, batch, parts)
        found = [part.objective(reader(part), batch, part.clock(clock)) for part in parts]
        main = found[0].weight
        return _added(parts, found, [main / it.weight if it.weight else 0.0 for it in found])

    def for_update(
        self,
        model: Trainable,
        batches: Sequence[tuple[Batch, Clock]],
        sums: Callable[[Sequence[float]], Sequence[float]],
    ) -> Objective:
        """The sum for several batches of one update: each part divided by its weight over all of them."""
        parts = self.parts(batches[0][1])
        if len(parts) == 1:
            return self.main.for_update(model, batches, sums)
        prepared = [
            [part.objective.prepare(model, batch, part.clock(clock)) for part in parts]
            for batch, clock in batches
        ]
        weights = sums([sum(losses[at].weight for losses in prepared) for at in range(len(parts))])
        scales = tuple(weights[0] / weight if weight else 0.0 for weight in weights)
        return _PreparedSum(self, parts, scales, tuple(batch for batch, _ in batches), tuple(prepared))

    def parts(self, clock: Clock) -> tuple[Part, ...]:
        """The main objective, and what is on beside it."""
        on = [Part(it, by) for it, by in self.others if by.weight > 0 and clock.update >= by.begin]
        return (Part(self.main, Share()), *on)

    def reader(self, model: Any, batch: Batch, parts: Sequence[Part]) -> Callable[[Part], Any]:
        """What each part reads: the model itself if it has rows of its own, else the shared pass."""
        watched = any(part.objective.watches for part in parts)
        shared = SharedPass(model, batch, watched=watched)
        return lambda part: model if part.objective.own_batches else shared


@dataclass(frozen=True)
class Part:
    """An objective that is on."""

    objective: Objective
    share: Share

    def clock(self, clock: Clock) -> Clock:
        """The clock since it was switched on."""
        return replace(clock, update=clock.update - self.share.begin)


@dataclass(frozen=True)
class _PreparedSum(Objective):
    """A weighted sum for the batches of one update."""

    whole: WeightedSum
    on: tuple[Part, ...]
    scales: tuple[float, ...]
    """The weight of the main objective over that of each part, over the whole update."""
    batches: tuple[Batch, ...]
    prepared: tuple[Sequence[PreparedLoss], ...]

    def __call__(self, model: Trainable, batch: Batch, clock: Clock) -> Loss:  # noqa: ARG002
        """The sum over one of these batches."""
        at = next(at for at, it in enumerate(self.batches) if it is batch)
        reader = self.whole.reader(model, batch, self.on)
        found = []
        for part, prepared in zip(self.on, self.prepared[at], strict=True):
            found.append(prepared.compute(reader(part)))
            if not math.isclose(found[-1].weight, prepared.weight, rel_tol=1e-6):
                raise ValueError(
                    f"{type(part.objective).__name__}.prepare gave the weight {prepared.weight}, but its "
                    f"loss has {found[-1].weight}: override prepare, so that both are the same"
                )
        return _added(self.on, found, self.scales)


def _added(parts: Sequence[Part], found: Sequence[Loss], scales: Sequence[float]) -> Loss:
    """Main + Σ λ · scale · loss; the trainer divides it by the main weight of the update."""
    main, stats = found[0], dict(found[0].stats)
    total = main.total
    for part, loss, scale in zip(parts[1:], found[1:], scales[1:], strict=True):
        total = total + part.share.weight * scale * loss.total
        stats = {name: scale * it for name, it in loss.stats.items()} | stats
    return Loss(total, main.weight, stats)
