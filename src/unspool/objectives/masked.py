"""What objectives share that hide places of a text and have a model say what stands there."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from unspool.data.batch import Batch, RandomStream
from unspool.interfaces import Clock, Loss, Objective, PreparedLoss, Trainable


class HidingObjective(Objective):
    """A subclass says which places are hidden, and how much each of them counts."""

    @property
    def hides(self) -> bool:
        """It does."""
        return True

    @property
    def draws(self) -> bool:
        """Which places are hidden."""
        return True

    @property
    def validation(self) -> Objective:
        """−log p of the hidden tokens of a text."""
        return HiddenTokens(self)

    @abstractmethod
    def weigh(self, lengths_N: Tensor, rate_N: Tensor, place_NT: Tensor) -> Tensor:
        """(N, T): how much a place counts where it is hidden, and 0 where it is shown.

        It is decided by random numbers of [0, 1): one of each row and one of each place.
        """

    def check(self, model: Trainable) -> None:
        """Refuse a model that says one token after another."""
        if model.infilling is None:
            raise ValueError(
                f"the objective hides places of a text, and a {type(model).__name__} says one token after "
                'another: choose model.kind = "masked_lm" or "masked_seq2seq", or another objective'
            )

    def prepare(self, model: Trainable, batch: Batch, clock: Clock) -> PreparedLoss:  # noqa: ARG002
        """The weight counts tokens of texts."""
        return PreparedLoss(float(batch.lengths_N.sum()), lambda reader: self(reader, batch, clock))

    def __call__(self, model: Trainable, batch: Batch, clock: Clock) -> Loss:  # noqa: ARG002
        """The sum over the hidden places, and −log p of the lengths where the model foresees them.

        EOS that stand behind a text are learnt, too, but neither the weight nor "nll" counts them. "nll" has
        the lengths, too: given its length, a text's EOS costs nothing.
        """
        found = self.read(model, batch)
        stats = {**found.stats, "nll": found.stats["nll"] + found.stats.get("length", 0.0)}
        return Loss(found.total, float(batch.lengths_N.sum()), stats)

    def read(self, model: Trainable, batch: Batch) -> Loss:
        """The same, but weight and "nll" are of the hidden tokens, each as often as it counts."""
        assert model.infilling is not None
        masked = self.hidden_places(model, batch)
        hidden_NTD, length_logp_NL = model.infilling.read_hidden(masked)
        hidden_MD, targets_M = hidden_NTD.flatten(0, 1), masked.targets_NU.flatten()
        text_NT = real(batch.lengths_N, masked.targets_NU.shape[1])
        text_M, behind_M = ((masked.weights_NU * counted_NT).flatten() for counted_NT in (text_NT, ~text_NT))
        total, nll = model.head.loss(hidden_MD, targets_M, text_M)
        if bool(behind_M.any()):
            total = total + model.head.loss(hidden_MD, targets_M, behind_M)[0]
        stats = {"nll": float(nll.detach())}
        if length_logp_NL is not None:
            lengths = -length_logp_NL.gather(1, masked.lengths_N[:, None] - 1).sum()
            total = total + lengths
            stats["length"] = float(lengths.detach())
        return Loss(total, float(text_M.sum()), stats)

    def hidden_places(self, model: Trainable, batch: Batch) -> Batch:
        """Whole texts of a batch, some of whose places are hidden from the model."""
        texts_NT, lengths_N = texts_of(model, batch)
        rate_N = batch.uniform(1, RandomStream.MASK_RATE)[:, 0]
        weights_NT = self.weigh(lengths_N, rate_N, batch.uniform(texts_NT.shape[1], RandomStream.MASKED))
        shown_NT = texts_NT.masked_fill(weights_NT > 0, self._mask(model))
        return replace(
            batch, inputs_NT=shown_NT, lengths_N=lengths_N, targets_NU=texts_NT, weights_NU=weights_NT
        )

    def _mask(self, model: Trainable) -> int:
        size: int = model.vocab_size  # type: ignore[attr-defined]
        return size


@dataclass(frozen=True)
class HiddenTokens(Objective):
    """−log p of the hidden tokens of a text up to its EOS, each as often as the objective counts it.

    Of a model that foresees lengths, −log p of the length is added: given it, EOS costs nothing.
    """

    objective: HidingObjective

    def __call__(self, model: Trainable, batch: Batch, clock: Clock) -> Loss:  # noqa: ARG002
        """The sum; stats has "nll" of the tokens, "hidden", how many they are, and "length"."""
        found = self.objective.read(model, batch)
        stats = {**found.stats, "hidden": found.weight}
        return Loss(found.total, float(batch.lengths_N.sum()), stats)


def texts_of(model: Trainable, batch: Batch) -> tuple[Tensor, Tensor]:
    """(N, T) texts as a model that fills hidden places reads them, and (N) their lengths."""
    assert model.infilling is not None
    return model.infilling.whole_texts(batch, batch.uniform(1, RandomStream.ROOM)[:, 0])


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


@dataclass(frozen=True)
class Masked(HidingObjective):
    """−log p of what stands at hidden places, of which there are a random number.

    The objective of conditional masked language models: a random number of places is hidden.

        n ~ U{1 … T},  M ⊂ {1 … T} with |M| = n,  L = − (T/n) Σ_{i∈M} log p(y_i | y_{∉M}, x)  −  log p(T | x)

    Ghazvininejad et al. 2019, §2 and §3.1 (papers.bib: ghazvininejad2019mask). Differs from the paper: a row
    counts as its T tokens do, however many of them are hidden (T/n), so that losses of one text can be
    compared.
    """

    def weigh(self, lengths_N: Tensor, rate_N: Tensor, place_NT: Tensor) -> Tensor:
        """(N, T): T/n at the n hidden places."""
        counts_N = (rate_N * lengths_N).long() + 1
        padding_NT = ~real(lengths_N, place_NT.shape[1])
        order_NT = place_NT.masked_fill(padding_NT, 2.0).argsort(dim=1, stable=True).argsort(1)
        return (order_NT < counts_N[:, None]).float() * (lengths_N / counts_N)[:, None]


@dataclass(frozen=True)
class MaskedDiffusionLoss(HidingObjective):
    """−log p of what stands at hidden places, each hidden with probability t and counted 1/t times.

    The objective of masked diffusion: every place is hidden with the same probability t, itself drawn anew.

        t ~ U(0, 1),      L = E_t[ (1/t) Σ_{i hidden} −log p(y_i | y_shown, x) ]  ≥  −log p(y | x)

    Sahoo et al. 2024, eq. 11 (papers.bib: sahoo2024simple); Nie et al. 2025, eq. 3 (papers.bib:
    nie2025large): an upper bound of the negative log-likelihood. A t below `least` is raised to it, for 1/t
    would be all there is.
    """

    least: float = 0.02
    """The least t."""

    def __post_init__(self) -> None:
        if not 0.0 < self.least < 1.0:
            raise ValueError(f"least={self.least} must be above 0 and below 1")

    def weigh(self, lengths_N: Tensor, rate_N: Tensor, place_NT: Tensor) -> Tensor:
        """(N, T): 1/t at hidden places."""
        t_N1 = rate_N[:, None].clamp(min=self.least)
        return ((place_NT < t_N1) & real(lengths_N, place_NT.shape[1])).float() / t_N1
