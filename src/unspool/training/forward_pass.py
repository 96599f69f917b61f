"""From a batch to its loss: the one place where training calls the objective."""

from __future__ import annotations

from torch import Tensor, nn

from unspool.data.batch import Batch
from unspool.protocols import Clock, Objective


class ForwardPass(nn.Module):
    """From a batch to its loss, as one forward pass: what the ways to share gradients hold on to."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, objective: Objective, batch: Batch, clock: Clock
    ) -> tuple[Tensor, float, dict[str, float]]:
        """The fields of a Loss, as a tuple: FSDP looks for tensors in those only."""
        loss = objective(self.model, batch, clock)  # type: ignore[arg-type]
        return loss.total, loss.weight, dict(loss.stats)
