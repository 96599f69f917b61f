"""Interfaces of training: feeds, trainable models, objectives and hooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from unspool.interfaces.model import Abilities, Head

if TYPE_CHECKING:
    from torch import Tensor

    from unspool.data.batch import Batch


class Feed(Protocol):
    """An endless sequence of batches, each a pure function of its number, so that a run can resume."""

    @property
    def per_epoch(self) -> int:
        """Batches of one epoch; the same for every epoch."""

    def batch(self, number: int) -> Batch: ...


class Trainable(Abilities, Protocol):
    """A model that can be trained: an nn.Module whose head reads one hidden state for every target."""

    @property
    def context(self) -> int | None:
        """Maximum number of tokens of a row; None if it is unlimited."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def tokenizer(self) -> Any: ...

    @property
    def head(self) -> LossHead: ...

    def hidden_for(self, batch: Batch) -> Tensor:
        """(N, U, D), in one parallel pass with teacher forcing."""


class LossHead(Head, Protocol):
    """A head that computes its loss without all (M, V) log-probabilities in memory."""

    def loss(
        self, hidden_MD: Tensor, targets_M: Tensor, weights_M: Tensor, smoothing: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """Two weighted sums over the targets: the loss, and −log p alone (without gradient).

        Σ_m weight_m · [(1 − s)·(−log p(target_m)) + s·mean_v(−log p(v))]

        The head skips padding, which has weight 0.
        """


@dataclass(frozen=True, slots=True)
class Clock:
    """The progress of a training run."""

    update: int
    """Updates of the weights so far."""
    updates: int
    """Updates of the whole run."""
    batches: int = 0
    """Batches read so far by all processes."""
    epoch: float = 0.0
    seed: int | None = None
    """Seed of the draws of an update; None: torch's generator."""
    micro_batch: int = 0
    """Index of the batch in this update, over all processes."""
    micro_batches: int = 1


@dataclass(frozen=True, slots=True)
class Loss:
    """A sum of losses, and the weight that divides the sum over all batches of an update."""

    total: Tensor
    weight: float
    stats: Mapping[str, float] = field(default_factory=dict)
    """Other sums ("nll"), divided by the same weight. Their names depend only on the clock."""


@dataclass(frozen=True, slots=True)
class PreparedLoss:
    """A loss whose weight is known before the training pass."""

    weight: float
    compute: Callable[[Any], Loss]
    """Computes the Loss from the model, or from a shared pass over it."""


class Objective(Protocol):
    """A training objective.

    Total and weight are sums over the rows of the batch, so that the loss of an update does not depend on how
    its rows are split into batches. Draws for a row use `Batch.uniform` or the row's seed; draws for an
    update use `Clock.seed`.
    """

    @property
    def needs_attention(self) -> bool:
        """True if it needs the attention weights of the shared pass."""
        return False

    @property
    def own_batches(self) -> bool:
        """True if the model reads other rows than those of the batch, such as generated texts."""
        return False

    def __call__(self, model: Trainable, batch: Batch, clock: Clock) -> Loss: ...

    @property
    def needs_row_seeds(self) -> bool:
        """True if rows need seeds (`Batch.seeds_N`)."""
        return False

    def prepare(self, model: Trainable, batch: Batch, clock: Clock) -> PreparedLoss:  # noqa: ARG002
        """Do the work before the training pass, such as generation; it determines the weight.

        All batches of an update are prepared first, because an auxiliary objective is divided by the sum of
        its weights. Override it if the weight is not that of the batch.
        """
        return PreparedLoss(batch.weight, lambda reader: self(reader, batch, clock))

    def for_update(
        self,
        model: Trainable,  # noqa: ARG002
        batches: Sequence[tuple[Batch, Clock]],  # noqa: ARG002
        sums: Callable[[Sequence[float]], Sequence[float]],  # noqa: ARG002
    ) -> Objective:
        """The objective for these batches of one update; `sums` adds numbers over all processes."""
        return self

    @property
    def validation(self) -> Objective | None:
        """The objective that measures −log p in validation; None: the cross-entropy."""
        return None

    @property
    def masks_tokens(self) -> bool:
        """True if it masks positions of a text, for masked models; it is then used in validation, too."""
        return False

    @property
    def uses_reward(self) -> bool:
        """True if it maximises a reward, which may lower the likelihood of the references."""
        return False

    def files(self) -> Mapping[str, str]:
        """Its settings that name a file or a folder, which a resumed run must find."""
        return {}

    def check(self, model: Trainable) -> None:  # noqa: ARG002
        """Refuse an unsuitable model before the first update."""
        return


class Hook(Protocol):
    """Called after each update; may change the model (KerBS reallocates senses)."""

    def __call__(self, model: Any, optimizer: Any, batch: Batch, clock: Clock) -> None: ...

    def state(self) -> Mapping[str, Tensor]:
        """The state for checkpoints, so that a resumed run is bit-identical."""

    def restore(self, state: Mapping[str, Tensor]) -> None: ...
