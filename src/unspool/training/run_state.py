"""The state of a training run: everything that a checkpoint stores and a resumed run restores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from unspool.data.batch import Batch
from unspool.interfaces import Clock, Feed, Hook, Objective
from unspool.models.lora import adapter_weights, merged_weights
from unspool.training.distributed import ProcessGroup
from unspool.training.optim import AdamW, Constant, Schedule
from unspool.training.settings import TrainSettings


@dataclass
class LogWindow:
    """Sums since the last point of the curves."""

    loss: float = 0.0
    nll: float = 0.0
    weight: float = 0.0
    updates: int = 0
    parts: dict[str, float] = field(default_factory=dict)


@dataclass
class Progress:
    """Progress counters of a run, stored as JSON."""

    update: int = 0
    best: float | None = None
    """The lowest −log p per token or the highest score of all validations, by `train.measure`."""
    best_update: int = 0
    stalled: int = 0
    """Validations since the best one."""
    targets: float = 0.0
    """Targets trained on."""
    seconds: float = 0.0
    """Training time, over all resumptions."""
    window: LogWindow = field(default_factory=LogWindow)


class Run:
    """A model with its data, optimizer and progress."""

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        feed: Feed,
        settings: TrainSettings,
        *,
        valid: Sequence[Batch] = (),
        schedule: Schedule | None = None,
        hooks: Sequence[Hook] = (),
        seed: int = 0,
        processes: ProcessGroup | None = None,
        base: str | None = None,
    ) -> None:
        """`base` is the fingerprint of the base weights of the model's adapters, if it has any."""
        self.processes = processes or ProcessGroup()
        if settings.accumulate % self.processes.size:
            raise ValueError(
                f"train.accumulate={settings.accumulate} is not a multiple of "
                f"{self.processes.size} processes: set it to a multiple of {self.processes.size}"
            )
        self.model = model.to(settings.device)
        self.objective, self.feed, self.settings, self.seed = objective, feed, settings, seed
        self.valid, self.schedule, self.hooks, self.base = valid, schedule or Constant(), hooks, base
        self.forward_pass = self.processes.wrap(self.model)
        self.optimizer = AdamW(self.model.named_parameters(), settings)
        self.progress = Progress()

    def batch(self, number: int) -> Batch:
        """Return the batch with this number on the run's device."""
        return self.feed.batch(number).to(self.settings.device)

    @property
    def clock(self) -> Clock:
        """The clock before the next update."""
        batches = self.progress.update * self.settings.accumulate
        return Clock(self.progress.update, self.settings.updates, batches, batches / self.feed.per_epoch)

    @property
    def over(self) -> bool:
        """True if all updates are done, or patience has run out."""
        patience = self.settings.patience
        stale = patience is not None and self.progress.stalled >= patience
        return stale or self.progress.update >= self.settings.updates

    def weights(self) -> dict[str, Tensor]:
        """Gather the model's tensors with merged adapters on the CPU. All processes must call it."""
        return {name: self._kept(tensor) for name, tensor in merged_weights(self.model).items()}

    def training_state(self) -> dict[str, Tensor]:
        """Gather optimizer and hook tensors on the CPU. All processes must call it."""
        kept = {f"optimizer/{name}": self._kept(moment) for name, moment in self.optimizer.moments().items()}
        for at, hook in enumerate(self.hooks):
            kept |= {f"hooks/{at}/{name}": self._kept(tensor) for name, tensor in hook.state().items()}
        return kept

    def restore(self, weights: Mapping[str, Tensor], state: Mapping[str, Tensor], progress: Progress) -> None:
        """Restore the results of `weights` and `training_state`."""
        self.set_weights(weights)
        self.optimizer.remember(
            {
                name: self._part(state[f"optimizer/{name}"], tensor)
                for name, tensor in self.optimizer.moments().items()
            }
        )
        for at, hook in enumerate(self.hooks):
            begins = f"hooks/{at}/"
            hook.restore(
                {key.removeprefix(begins): tensor for key, tensor in state.items() if key.startswith(begins)}
            )
        self.progress = progress

    @torch.no_grad()
    def set_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Copy weights into the model, or into its adapters; shapes must match."""
        own = adapter_weights(self.model) if self.base is not None else self.model.state_dict()
        fits = {name: tuple(tensor.shape) for name, tensor in own.items()}
        found = {name: tuple(tensor.shape) for name, tensor in weights.items()}
        for name in sorted(fits.keys() | found.keys()):
            if fits.get(name) != found.get(name):
                there, here = (shapes.get(name, "not there") for shapes in (found, fits))
                raise ValueError(
                    f"the checkpoint holds the weights of another model: {name!r} is {there} in it, but "
                    f"{here} in this one"
                )
        for name, tensor in own.items():
            tensor.copy_(self._part(weights[name], tensor))

    def _kept(self, tensor: Tensor) -> Tensor:
        return self.processes.full_tensor(tensor.detach()).cpu().contiguous()

    def _part(self, whole: Tensor, like: Tensor) -> Tensor:
        return self.processes.shard_like(whole.to(like.device), like)
