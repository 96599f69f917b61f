"""Hooks: called after each update, may inspect and change the model.

A hook's settings are a frozen dataclass with `build(model) -> interfaces.Hook`; a recipe lists them
as [[hooks]].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unspool.arguments import Checked, integer, number
from unspool.data.batch import Batch
from unspool.heads.kerbs import Kerbs
from unspool.interfaces import Clock, Trainable


@dataclass(frozen=True)
class KerbsReallocate(Checked):
    """KerBS: move senses from words that do not use them to words that are hard to predict.

        log P_i ← (1 − β)·log P_i + β·mean_t 1[ŷ_t = i]·log P(y_t = i)
        U_ij ← (1 − β)·U_ij + β·mean_t 1[ŷ_t = i]·P(s_t = ⟨i, j⟩)
        every M updates: the senses of least U move to the words of least log P

    Miao et al. 2019, §3 (papers.bib: miao2019kernelized). Both averages weight a word by its frequency, so
    that the words of least log P are frequent and badly predicted. A moved sense starts as a perturbed copy
    of its new word's most used sense, with θ = 0, mean usage and empty optimizer state. The number of senses
    is constant.

    Differs from the paper: t runs over the targets of one update; at most a share of the words gets one sense
    at a time, instead of all words below a threshold, and no word more than `most`. The authors' code ranks
    words the other way round; this follows the paper.

    Symbols: β `rate`, M `every`.
    """

    every: int = integer(100, at_least=1)
    """Updates between two reallocations."""
    rate: float = number(0.01, above=0, at_most=1)
    """Weight of one update in the averages."""
    most: int = integer(4, at_least=1)
    """Maximum senses of a word."""
    share: float = number(0.005, at_least=0, at_most=0.5)
    """Share of the words that get one more sense at a time (at least one word), up to ½."""
    noise: float = number(0.1, at_least=0, at_most=10)
    """Distance of a moved sense from its original, relative to the original's length."""

    def build(self, model: Trainable) -> Reallocation:
        """Return the hook for a model with a KerBS head."""
        head = model.sense_head
        if head is None:
            raise TypeError(
                f"kerbs_reallocate needs a KerBS head, but the model is a {type(model).__name__}: "
                'set model.head.kind to "kerbs", or remove the hook'
            )
        if len(head.words_S) == head.vocab_size:
            raise ValueError(
                "kerbs_reallocate needs words with several senses: set model.head.senses above 1, or remove "
                "the hook"
            )
        return Reallocation(self, head)


class Reallocation:
    """The hook: keeps both averages and moves senses."""

    def __init__(self, settings: KerbsReallocate, head: Kerbs) -> None:
        self.settings = settings
        self.logp_V = torch.zeros(head.vocab_size)
        self.usage_S = torch.zeros(len(head.words_S))

    def __call__(self, model: Any, optimizer: Any, batch: Batch, clock: Clock) -> None:  # noqa: ARG002
        """Update the averages; move senses at every M-th update."""
        self._average(model.sense_head)
        if clock.update % self.settings.every == 0:
            for sense, word in self.moves(model.sense_head):
                self._move(model.sense_head, optimizer, sense, word, clock.update)

    def state(self) -> Mapping[str, Tensor]:
        return {"logp_V": self.logp_V, "usage_S": self.usage_S}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        self.logp_V, self.usage_S = state["logp_V"].clone(), state["usage_S"].clone()

    def _average(self, head: Kerbs) -> None:
        seen = head.pop_statistics()
        sums = torch.cat([seen.targets[None], seen.logp_V, seen.usage_S]).double()
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(sums)
        means = (sums / sums[0].clamp_min(1.0)).float().cpu()
        self.logp_V.lerp_(means[1 : 1 + head.vocab_size], self.settings.rate)
        self.usage_S.lerp_(means[1 + head.vocab_size :], self.settings.rate)

    def moves(self, head: Kerbs) -> list[tuple[int, int]]:
        """Return (sense, word) pairs: the least used spare senses for the worst words."""
        words = head.words_S.tolist()
        counts = torch.bincount(head.words_S, minlength=head.vocab_size).tolist()
        limit = max(1, round(self.settings.share * head.vocab_size))
        worst = [word for word in torch.argsort(self.logp_V, stable=True).tolist() if self.logp_V[word] < 0.0]
        needy = [word for word in worst if counts[word] < self.settings.most][:limit]
        spared = iter(torch.argsort(self.usage_S, stable=True).tolist())
        moves: list[tuple[int, int]] = []
        keeping = set(needy)
        for word in needy:
            sense = next((s for s in spared if counts[words[s]] > 1 and words[s] not in keeping), None)
            if sense is None:
                break
            counts[words[sense]] -= 1
            counts[word] += 1
            moves.append((sense, word))
        return moves

    @torch.no_grad()
    def _move(self, head: Kerbs, optimizer: Any, sense: int, word: int, update: int) -> None:
        own = (head.words_S == word).nonzero()[:, 0].cpu()
        model_D = head.senses_SD[own[self.usage_S[own].argmax()]]
        # Seeded by update and sense, so that a resumed run draws the same.
        rng = torch.Generator().manual_seed(update * len(head.words_S) + sense)
        noise_D = torch.randn(len(model_D), generator=rng).to(model_D)
        scale = self.settings.noise * model_D.norm() / len(model_D) ** 0.5
        head.reassign(sense, word, model_D + scale * noise_D)
        self.usage_S[sense] = self.usage_S.mean()
        for parameter in (head.senses_SD, head.theta_S):
            for tensor in optimizer.state.get(parameter, {}).values():
                if tensor.shape == parameter.shape:
                    tensor[sense] = 0.0


HOOKS: dict[str, type[Any]] = {"kerbs_reallocate": KerbsReallocate}
