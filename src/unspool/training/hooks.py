"""What looks at the model after each update, and may change it: one small file each.

A hook's settings are a frozen dataclass with `build(model) -> interfaces.Hook`; a recipe lists them
as [[hooks]].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unspool.data.batch import Batch
from unspool.interfaces import Clock, SenseHead, Trainable

# Moves KerBS's senses, as training goes, from words that do not use them to words that need them.
#
#     log P_i ← (1 − β)·log P_i + β·mean_t 1[ŷ_t = i]·log P(y_t = i)
#     U_ij ← (1 − β)·U_ij + β·mean_t 1[ŷ_t = i]·P(s_t = ⟨i, j⟩)
#     every M updates: the senses of least U go to the words of least log P
#
# Miao et al. 2019, §3 (papers.bib: miao2019kernelized). Both averages count a word as often as it occurs, so
# that the words of least log P are those that are frequent and badly predicted. A moved sense begins as a
# perturbed copy of its new word's most used sense, with θ = 0, with the mean usage of all senses and with
# nothing in the optimizer's memory. The number of senses stays what it is.
#
# Differs from the paper: t runs over the targets of one update at a time; instead of all words below a
# threshold, at most a share of the words gets one sense at a time, and no word more than `most`. The authors'
# code ranks words the other way round; this follows the paper.
#
# Symbols: β `rate`, M `every`.


@dataclass(frozen=True)
class KerbsReallocate:
    """Lets words that are hard to predict have more of the senses of a KerBS head."""

    every: int = 100
    """Updates between two reallocations."""
    rate: float = 0.01
    """How much of the averages one update renews."""
    most: int = 4
    """The most senses of a word."""
    share: float = 0.005
    """The share of all words that get one more sense at a time (at least one word does): up to ½, for the
    others give."""
    noise: float = 0.1
    """How far a moved sense is from its original, as a part of the original's length."""

    def __post_init__(self) -> None:
        if self.every < 1 or self.most < 1:
            raise ValueError(f"every={self.every} and most={self.most} must be at least 1")
        if not (0.0 < self.rate <= 1.0 and 0.0 <= self.share <= 0.5 and 0.0 <= self.noise <= 10.0):
            raise ValueError(
                f"rate={self.rate} must be above 0 and at most 1, share={self.share} between 0 and 0.5, "
                f"noise={self.noise} between 0 and 10"
            )

    def build(self, model: Trainable) -> Reallocation:
        """The hook for a model with a KerBS head."""
        head = model.sense_head
        if head is None:
            raise TypeError(
                f"kerbs_reallocate needs a model with a KerBS head, and a {type(model).__name__} has none: "
                'set model.head.kind to "kerbs", or leave the hook out'
            )
        if len(head.words_S) == head.vocab_size:
            raise ValueError(
                "kerbs_reallocate has nothing to move where every word has one sense: set model.head.senses "
                "above 1, or leave the hook out"
            )
        return Reallocation(self, head)


class Reallocation:
    """The hook: two averages, and moves from time to time."""

    def __init__(self, settings: KerbsReallocate, head: SenseHead) -> None:
        self.settings = settings
        self.logp_V = torch.zeros(head.vocab_size)
        self.usage_S = torch.zeros(len(head.words_S))

    def __call__(self, model: Any, optimizer: Any, batch: Batch, clock: Clock) -> None:  # noqa: ARG002
        """Renew the averages; at every M-th update, move senses."""
        self._average(model.sense_head)
        if clock.update % self.settings.every == 0:
            for sense, word in self.moves(model.sense_head):
                self._move(model.sense_head, optimizer, sense, word, clock.update)

    def state(self) -> Mapping[str, Tensor]:
        """Both averages: the rest is the model's."""
        return {"logp_V": self.logp_V, "usage_S": self.usage_S}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on from there."""
        self.logp_V, self.usage_S = state["logp_V"].clone(), state["usage_S"].clone()

    def _average(self, head: SenseHead) -> None:
        seen = head.pop_statistics()
        sums = torch.cat([seen.targets[None], seen.logp_V, seen.usage_S]).double()
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(sums)
        means = (sums / sums[0].clamp_min(1.0)).float().cpu()
        self.logp_V.lerp_(means[1 : 1 + head.vocab_size], self.settings.rate)
        self.usage_S.lerp_(means[1 + head.vocab_size :], self.settings.rate)

    def moves(self, head: SenseHead) -> list[tuple[int, int]]:
        """Which sense goes to which word: the least used that can be spared, to the worst words in turn."""
        words = head.words_S.tolist()
        counts = torch.bincount(head.words_S, minlength=head.vocab_size).tolist()
        limit = max(1, round(self.settings.share * head.vocab_size))
        worst = [word for word in torch.argsort(self.logp_V, stable=True).tolist() if self.logp_V[word] < 0.0]
        needy = [word for word in worst if counts[word] < self.settings.most][:limit]
        spared = iter(torch.argsort(self.usage_S, stable=True).tolist())
        found: list[tuple[int, int]] = []
        keeping = set(needy)
        for word in needy:
            sense = next((it for it in spared if counts[words[it]] > 1 and words[it] not in keeping), None)
            if sense is None:
                break
            counts[words[sense]] -= 1
            counts[word] += 1
            found.append((sense, word))
        return found

    @torch.no_grad()
    def _move(self, head: SenseHead, optimizer: Any, sense: int, word: int, update: int) -> None:
        own = (head.words_S == word).nonzero()[:, 0].cpu()
        model_D = head.senses_SD[own[self.usage_S[own].argmax()]]
        # Of the update and the sense alone, so that a resumed run draws the same.
        dice = torch.Generator().manual_seed(update * len(head.words_S) + sense)
        noise_D = torch.randn(len(model_D), generator=dice).to(model_D)
        scale = self.settings.noise * model_D.norm() / len(model_D) ** 0.5
        head.reassign(sense, word, model_D + scale * noise_D)
        self.usage_S[sense] = self.usage_S.mean()
        for parameter in (head.senses_SD, head.theta_S):
            for tensor in optimizer.state.get(parameter, {}).values():
                if tensor.shape == parameter.shape:
                    tensor[sense] = 0.0


HOOKS: dict[str, type[Any]] = {"kerbs_reallocate": KerbsReallocate}
