"""What learns, from what, and towards what."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from unspool.interfaces.model import Abilities, Head

if TYPE_CHECKING:
    from torch import Tensor

    from unspool.data.batch import Batch


class Feed(Protocol):
    """An endless sequence of batches, each a pure function of its number: to resume is to go on counting."""

    @property
    def per_epoch(self) -> int:
        """Batches in one pass over the data; the same for every epoch."""
        ...

    @property
    def carries(self) -> bool:
        """Whether rows go on where those of an earlier batch ended (`Batch.follows`)."""
        return False

    def batch(self, number: int) -> Batch: ...


class Trainable(Abilities, Protocol):
    """A model that learns: an nn.Module whose head reads one hidden vector for every target."""

    @property
    def context(self) -> int | None:
        """The most tokens of a row; None where there is no limit."""
        ...

    @property
    def head(self) -> LossHead: ...

    def hidden_for(self, batch: Batch) -> Tensor:
        """(N, U, D), in one parallel pass with teacher forcing."""
        ...


class LossHead(Head, Protocol):
    """A head that also knows its own loss, without holding all (M, V) log-probabilities in memory."""

    def loss(
        self, hidden_MD: Tensor, targets_M: Tensor, weights_M: Tensor, smoothing: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """Two sums over the targets, each weighted: what is minimised, and −log p alone (no gradient).

        Σ_m weight_m · [(1 − s)·(−log p(target_m)) + s·mean_v(−log p(v))]

        Padding has weight 0: the head leaves it out first, for it would cost as much as any other target.
        """
        ...


@dataclass(frozen=True, slots=True)
class Clock:
    """How far a training run has come."""

    update: int
    """Updates of the weights so far."""
    updates: int
    """Updates of the whole run."""
    batches: int = 0
    """Batches read so far, by all processes together."""
    epoch: float = 0.0
    seed: int | None = None
    """Seed of what is drawn for the whole update; None: torch's generator."""
    micro_batch: int = 0
    """Which of the batches of this update it is, by all processes together."""
    micro_batches: int = 1


@dataclass(frozen=True, slots=True)
class Loss:
    """A sum of losses, and the weight to divide it by once the batches of one update are added up."""

    total: Tensor
    weight: float
    stats: Mapping[str, float] = field(default_factory=dict)
    """Other sums over the same batch ("nll" for the perplexity), divided by the same weight. Which ones there
    are depends on nothing but the clock."""


@dataclass(frozen=True, slots=True)
class PreparedLoss:
    """A loss whose weight is known before the pass that is learnt from."""

    weight: float
    """That of the Loss."""
    compute: Callable[[Any], Loss]
    """Takes the model, or a pass over it that is shared."""


class Objective(Protocol):
    """What is minimised.

    Total and weight are sums over the rows of the batch, so that the loss of an update does not depend on how
    its rows are split into batches. What is drawn for a row comes from `Batch.uniform` or the row's seed, and
    what is drawn for an update from `Clock.seed`.
    """

    @property
    def watches(self) -> bool:
        """Whether it asks where the heads look: the one pass that it shares with others then tells."""
        return False

    @property
    def own_batches(self) -> bool:
        """Whether it has the model read other rows than those of the batch, its own answers for example."""
        return False

    def __call__(self, model: Trainable, batch: Batch, clock: Clock) -> Loss: ...

    @property
    def draws(self) -> bool:
        """Whether rows need seeds (`Batch.seeds_N`)."""
        return False

    def prepare(self, model: Trainable, batch: Batch, clock: Clock) -> PreparedLoss:  # noqa: ARG002
        """Do what comes before the pass that is learnt from, such as generating; the weight is known then.

        All batches of an update are prepared first: an auxiliary objective is divided by the sum of its
        weights over all of them. To be overridden if the weight is not that of the batch.
        """
        return PreparedLoss(batch.weight, lambda reader: self(reader, batch, clock))

    def for_update(
        self,
        model: Trainable,  # noqa: ARG002
        batches: Sequence[tuple[Batch, Clock]],  # noqa: ARG002
        sums: Callable[[Sequence[float]], Sequence[float]],  # noqa: ARG002
    ) -> Objective:
        """The objective for these batches of one update; `sums` adds numbers up over all processes."""
        return self

    @property
    def validation(self) -> Objective | None:
        """What measures −log p in validation; None: the cross-entropy."""
        return None

    @property
    def hides(self) -> bool:
        """Whether it hides places of a text, for models that say what stands there; it validates, too."""
        return False

    @property
    def rewarded(self) -> bool:
        """Whether it follows a reward, for which it may lower the likelihood of right answers."""
        return False

    def files(self) -> Mapping[str, str]:
        """Those of its settings that name a file or a folder: a resumed run finds it from anywhere."""
        return {}

    def check(self, model: Trainable) -> None:  # noqa: ARG002
        """Refuse, before the first update, a model that it cannot teach."""
        return


class Hook(Protocol):
    """Looks at the model after each update, and may change it (KerBS's reallocation of senses)."""

    def __call__(self, model: Any, optimizer: Any, batch: Batch, clock: Clock) -> None: ...

    def state(self) -> Mapping[str, Tensor]:
        """What a checkpoint must keep, so that a resumed run is bit-equal."""
        ...

    def restore(self, state: Mapping[str, Tensor]) -> None: ...
