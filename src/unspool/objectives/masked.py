"""Masked objectives: predict the tokens at masked positions (CMLM and masked diffusion)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from unspool.arguments import Checked, number
from unspool.data.batch import Batch, RandomStream
from unspool.interfaces import Clock, Loss, Objective, PreparedLoss, Trainable


class MaskedObjective(Objective):
    """Base class; a subclass chooses the masked positions and their weights."""

    masks_tokens = True
    needs_row_seeds = True

    @property
    def validation(self) -> Objective:
        return MaskedTokenLoss(self)

    @abstractmethod
    def weigh(self, lengths_N: Tensor, rate_N: Tensor, uniform_NT: Tensor) -> Tensor:
        """(N, T): the weight of each masked position, 0 if it is not masked.

        The choice depends on uniform random numbers in [0, 1): one per row and one per position.
        """

    def check(self, model: Trainable) -> None:
        if model.infilling is None:
            raise ValueError(
                f"a masked objective does not work with {type(model).__name__}, which is autoregressive: "
                'choose model.kind = "masked_lm" or "masked_seq2seq", or another objective'
            )

    def prepare(self, model: Trainable, batch: Batch, clock: Clock) -> PreparedLoss:  # noqa: ARG002
        """The weight is the number of tokens of the texts."""
        return PreparedLoss(float(batch.lengths_N.sum()), lambda reader: self(reader, batch, clock))

    def __call__(self, model: Trainable, batch: Batch, clock: Clock) -> Loss:  # noqa: ARG002
        """The sum over masked positions, plus −log p of the lengths if the model predicts them.

        EOS tokens after a text are learnt, but the weight and "nll" exclude them. "nll" includes the
        lengths: given its length, the EOS of a text costs nothing.
        """
        loss = self.compute_loss(model, batch)
        stats = {**loss.stats, "nll": loss.stats["nll"] + loss.stats.get("length", 0.0)}
        return Loss(loss.total, float(batch.lengths_N.sum()), stats)

    def compute_loss(self, model: Trainable, batch: Batch) -> Loss:
        """The same, but weight and "nll" are weighted sums over masked tokens."""
        assert model.infilling is not None
        masked = self.mask_batch(model, batch)
        hidden_NTD, length_logp_NL = model.infilling.read_hidden(masked)
        hidden_MD, targets_M = hidden_NTD.flatten(0, 1), masked.targets_NU.flatten()
        is_text_NT = is_real(batch.lengths_N, masked.targets_NU.shape[1])
        text_weights_M, eos_weights_M = (
            (masked.weights_NU * is_counted_NT).flatten() for is_counted_NT in (is_text_NT, ~is_text_NT)
        )
        total, nll = model.head.loss(hidden_MD, targets_M, text_weights_M)
        if bool(eos_weights_M.any()):
            total = total + model.head.loss(hidden_MD, targets_M, eos_weights_M)[0]
        stats = {"nll": float(nll.detach())}
        if length_logp_NL is not None:
            lengths = -length_logp_NL.gather(1, masked.lengths_N[:, None] - 1).sum()
            total = total + lengths
            stats["length"] = float(lengths.detach())
        return Loss(total, float(text_weights_M.sum()), stats)

    def mask_batch(self, model: Trainable, batch: Batch) -> Batch:
        """The full texts of a batch with random positions masked."""
        texts_NT, lengths_N = full_texts(model, batch)
        rate_N = batch.uniform(1, RandomStream.MASK_RATE)[:, 0]
        weights_NT = self.weigh(lengths_N, rate_N, batch.uniform(texts_NT.shape[1], RandomStream.MASKED))
        shown_NT = texts_NT.masked_fill(weights_NT > 0, model.vocab_size)  # the id of the mask
        return replace(
            batch, inputs_NT=shown_NT, lengths_N=lengths_N, targets_NU=texts_NT, weights_NU=weights_NT
        )


@dataclass(frozen=True)
class MaskedTokenLoss(Objective):
    """−log p of the masked tokens of a text up to its EOS, weighted by the objective.

    If the model predicts lengths, −log p of the length is added: given it, EOS costs nothing.
    """

    objective: MaskedObjective

    def __call__(self, model: Trainable, batch: Batch, clock: Clock) -> Loss:  # noqa: ARG002
        """The sum; stats has "nll" and number ("hidden") of the masked tokens, and "length"."""
        loss = self.objective.compute_loss(model, batch)
        stats = {**loss.stats, "hidden": loss.weight}
        return Loss(loss.total, float(batch.lengths_N.sum()), stats)


def full_texts(model: Trainable, batch: Batch) -> tuple[Tensor, Tensor]:
    """Texts (N, T) in the form that a masked model reads, and their lengths (N)."""
    assert model.infilling is not None
    return model.infilling.whole_texts(batch, batch.uniform(1, RandomStream.ROOM)[:, 0])


def check_not_masked_model(model: Trainable, objective: Objective) -> None:
    if model.infilling is not None:
        raise ValueError(
            f"{type(objective).__name__} predicts the next token, but {type(model).__name__} is a masked "
            'model: use objective.kind = "masked" or "masked_diffusion"'
        )


def check_generates_text(model: Trainable, objective: Objective) -> None:
    check_not_masked_model(model, objective)
    if model.labels is not None:
        raise ValueError(
            f"{type(objective).__name__} needs a model that generates text, but {type(model).__name__} "
            "predicts labels: choose cross_entropy"
        )


def is_real(lengths_N: Tensor, longest: int) -> Tensor:
    """(N, T): False on padding."""
    return torch.arange(longest, device=lengths_N.device) < lengths_N[:, None]


@dataclass(frozen=True)
class Masked(MaskedObjective):
    """The conditional masked language model objective: a random number of positions is masked.

        n ~ U{1 … T},  M ⊂ {1 … T} with |M| = n,  L = − (T/n) Σ_{i∈M} log p(y_i | y_{∉M}, x)  −  log p(T | x)

    Ghazvininejad et al. 2019, §2 and §3.1 (papers.bib: ghazvininejad2019mask). Differs from the paper: the
    factor T/n makes losses of one text comparable for any number of masked positions.
    """

    def weigh(self, lengths_N: Tensor, rate_N: Tensor, uniform_NT: Tensor) -> Tensor:
        """(N, T): T/n at the n masked positions."""
        counts_N = (rate_N * lengths_N).long() + 1
        padding_NT = ~is_real(lengths_N, uniform_NT.shape[1])
        order_NT = uniform_NT.masked_fill(padding_NT, 2.0).argsort(dim=1, stable=True).argsort(1)
        return (order_NT < counts_N[:, None]).float() * (lengths_N / counts_N)[:, None]


@dataclass(frozen=True)
class MaskedDiffusionLoss(Checked, MaskedObjective):
    """The masked diffusion objective: each position is masked with probability t, drawn per row.

        t ~ U(0, 1),      L = E_t[ (1/t) Σ_{i hidden} −log p(y_i | y_shown, x) ]  ≥  −log p(y | x)

    Sahoo et al. 2024, eq. 11 (papers.bib: sahoo2024simple); Nie et al. 2025, eq. 3 (papers.bib:
    nie2025large): an upper bound on the negative log-likelihood. t is at least `least`, because 1/t would
    dominate otherwise.
    """

    least: float = number(0.02, above=0, below=1)
    """The smallest t."""

    def weigh(self, lengths_N: Tensor, rate_N: Tensor, uniform_NT: Tensor) -> Tensor:
        """(N, T): 1/t at masked positions."""
        t_N1 = rate_N[:, None].clamp(min=self.least)
        return ((uniform_NT < t_N1) & is_real(lengths_N, uniform_NT.shape[1])).float() / t_N1
