"""The tokens that are still in question, of every row: what a cut leaves, without what it cut.

    s(x) = log p(x) − max log p ≤ 0

Scores are held relative to the row's best, so that nothing is normalised between two rules: only the rules
that ask for probabilities cause them to be computed. The columns stay in the order of the vocabulary, so that
the same roll of the dice finds the same token whether a row was shortened or not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unspool.decode.picks.multinomial import invert, masses
from unspool.decode.transforms.scores import peaks

SHORTER = 4
"""Rows are rewritten when they become this many times shorter; before that, cut tokens are only marked."""
HUGE = 1e38


@dataclass(frozen=True)
class Shortlist:
    """Rows of tokens and their scores, no longer than the rules so far require."""

    score_NW: Tensor
    """Relative to the row's best; −∞ for a cut token and for the padding of a row shorter than others."""
    vocabulary: int
    tokens: tuple[NDArray[np.int64], ...] | None = None
    """The token ids of every row, ascending; None while a column still is its token id."""

    @classmethod
    def of(cls, scores_NV: Tensor) -> Shortlist:
        """Whole rows; refuses those with NaN or without a token."""
        scores_NV = scores_NV.detach()
        return cls(scores_NV - peaks(scores_NV), scores_NV.shape[1])

    @cached_property
    def p_NW(self) -> Tensor:
        """Probabilities, of a total that is 1 up to rounding."""
        return self.score_NW.softmax(dim=-1)

    @cached_property
    def total_N(self) -> Tensor:
        """What `p_NW` sums to, in double precision."""
        return masses(self.p_NW).sum(dim=-1)

    @cached_property
    def best_N(self) -> Tensor:
        """The largest probability."""
        return self.p_NW.amax(dim=-1)

    @cached_property
    def entropy_N(self) -> Tensor:
        """H = −Σ p log p = −log p_best − Σ p·s, in double precision."""
        term_NW = self.p_NW * self.score_NW
        sum_N = masses(term_NW).sum(dim=-1)
        if bool(sum_N.isnan().any()):  # 0 · −∞: a token that was cut adds nothing
            sum_N = masses(term_NW.nan_to_num_(nan=0.0)).sum(dim=-1)
        return -self.best_N.double().log() - sum_N

    def keep(self, keep_NW: NDArray[np.bool_]) -> Shortlist:
        """Only the tokens that the mask names."""
        sizes = [int(np.count_nonzero(row)) for row in keep_NW]
        if max(sizes) * SHORTER > keep_NW.shape[1]:
            return self._mark(keep_NW)
        columns = [np.flatnonzero(row) for row in keep_NW]
        short_NW = np.full((len(sizes), max(sizes)), -np.inf, dtype=np.float32)
        for row, (score_W, column) in enumerate(zip(self.score_NW.numpy(), columns, strict=True)):
            short_NW[row, : len(column)] = score_W[column]
        tokens = columns if self.tokens is None else [t[c] for t, c in zip(self.tokens, columns, strict=True)]
        return Shortlist(_to_best(torch.from_numpy(short_NW)), self.vocabulary, tuple(tokens))

    def _mark(self, keep_NW: NDArray[np.bool_]) -> Shortlist:
        # In arithmetic: a choice by a mask is several times slower, for it branches at every token.
        kept_NW = torch.from_numpy(keep_NW.view(np.uint8)).float()
        score_NW = torch.threshold(self.score_NW + (kept_NW - 1) * HUGE, -HUGE / 2, -math.inf)
        marked = Shortlist(_to_best(score_NW), self.vocabulary, self.tokens)
        if "p_NW" in self.__dict__:
            p_NW = self.p_NW * kept_NW
            marked.__dict__["p_NW"] = p_NW.div_(masses(p_NW).sum(dim=-1, keepdim=True).float())
        return marked

    def draw(self, u_N: Tensor) -> tuple[Tensor, Tensor]:
        """The token of every row at the share u of its mass, and its log-probability."""
        column_N1 = invert(self.p_NW, u_N)[:, None]
        logp_N = (self.p_NW.gather(1, column_N1)[:, 0] / self.total_N).log()
        if self.tokens is None:
            return column_N1[:, 0], logp_N
        columns = column_N1[:, 0].tolist()
        return torch.tensor([int(t[c]) for t, c in zip(self.tokens, columns, strict=True)]), logp_N

    def whole(self) -> Tensor:
        """(N, V) log-probabilities, −∞ for every token that was cut."""
        logp_NW = self.score_NW.log_softmax(dim=-1)
        if self.tokens is None:
            return logp_NW
        logp_NV = logp_NW.new_full((len(self.tokens), self.vocabulary), -math.inf)
        for full_V, logp_W, token in zip(logp_NV.numpy(), logp_NW.numpy(), self.tokens, strict=True):
            full_V[token] = logp_W[: len(token)]
        return logp_NV


def _to_best(score_NW: Tensor) -> Tensor:
    """Relative to the best again, where a rule has cut the best."""
    best_N1 = score_NW.amax(dim=-1, keepdim=True)
    return score_NW if bool((best_N1 == 0).all()) else score_NW - best_N1
