"""What objectives share that hide places of a text and have a model say what stands there."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

import torch
from torch import Tensor

from unspool.data.batch import Batch
from unspool.protocols import Clock, Loss, Objective, Trainable


class HidingObjective(Objective):
    """A subclass says which places are hidden, and how much each of them counts."""

    @property
    def hides(self) -> bool:
        """It does."""
        return True

    @abstractmethod
    def weigh(self, lengths_N: Tensor, longest: int) -> Tensor:
        """(N, T): how much a place counts where it is hidden, and 0 where it is shown."""

    def check(self, model: Trainable) -> None:
        """Refuse a model that says one token after another."""
        if model.infilling is None:
            raise ValueError(
                f"the objective hides places of a text, and a {type(model).__name__} says one token after "
                'another: choose model.kind = "masked_lm" or "masked_seq2seq", or another objective'
            )

    def __call__(self, model: Trainable, batch: Batch, clock: Clock) -> Loss:  # noqa: ARG002
        """The sum over the hidden places, and −log p of the lengths where the model foresees them."""
        assert model.infilling is not None
        masked = self.hidden_places(model, batch)
        texts_NT, lengths_N, weights_NT = masked.targets_NU, masked.lengths_N, masked.weights_NU
        hidden_NTD, length_logp_NL = model.infilling.read_hidden(masked)
        total, nll = model.head.loss(hidden_NTD.flatten(0, 1), texts_NT.flatten(), weights_NT.flatten())
        stats = {"nll": float(nll.detach())}
        if length_logp_NL is not None:
            lengths = -length_logp_NL.gather(1, lengths_N[:, None] - 1).sum()
            total = total + lengths
            stats["length"] = float(lengths.detach())
        return Loss(total, float(lengths_N.sum()), stats)

    def hidden_places(self, model: Trainable, batch: Batch) -> Batch:
        """Whole texts of a batch, some of whose places are hidden from the model."""
        assert model.infilling is not None
        texts_NT, lengths_N = model.infilling.whole_texts(batch)
        weights_NT = self.weigh(lengths_N, texts_NT.shape[1])
        shown_NT = texts_NT.masked_fill(weights_NT > 0, self._mask(model))
        return replace(
            batch, inputs_NT=shown_NT, lengths_N=lengths_N, targets_NU=texts_NT, weights_NU=weights_NT
        )

    def _mask(self, model: Trainable) -> int:
        size: int = model.vocab_size  # type: ignore[attr-defined]
        return size


def refuse_hidden_places(model: Trainable, objective: Objective) -> None:
    """Refuse a model that fills hidden places, for an objective that asks for the next token."""
    if model.infilling is not None:
        raise ValueError(
            f"{type(objective).__name__} is of the next token, and a {type(model).__name__} fills hidden "
            'places: leave it out, and choose objective.kind = "masked" or "masked_diffusion"'
        )


def real(lengths_N: Tensor, longest: int) -> Tensor:
    """(N, T): True where a place is no padding."""
    return torch.arange(longest, device=lengths_N.device) < lengths_N[:, None]
