"""The tokens that are still in question, of every row: what a cut leaves, without what it cut.

    p(x) = w(x) / Σ w,     w = softmax(score) at first, and what a cut leaves of it later

Nothing is normalised between two rules, and only the rules that ask for weights cause them to be computed.
The columns stay in the order of the vocabulary, so that the same roll of the dice finds the same token
whether a row was shortened or not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unspool.decode.multinomial import masses, seek
from unspool.decode.shortlist.certainty import BLOCKS, doubt
from unspool.decode.transforms.scores import peaks

SHORTER = 4
"""Rows are rewritten when they become this many times shorter; before that, cut tokens are only marked."""
HUGE = 1e38


@dataclass(frozen=True)
class Marks:
    """Which tokens are left of rows that were not rewritten."""

    kept_NW: Tensor
    """1 or 0."""
    weight_NW: Tensor
    """0 where cut."""


@dataclass(frozen=True)
class Shortlist:
    """Rows of tokens and their scores, no longer than the rules so far require."""

    raw_NW: Tensor
    """Scores up to a constant of the row; −∞ for cut tokens, and to pad rows shorter than others."""
    vocabulary: int
    tokens: tuple[NDArray[np.int64], ...] | None = None
    """The token ids of every row, ascending; None while a column still is its token id."""
    marks: Marks | None = None
    sure: NDArray[np.bool_] | None = None
    """(N): whether rounding cannot have changed which tokens were cut; None where none were."""

    @classmethod
    def of(cls, scores_NV: Tensor) -> Shortlist:
        """Whole rows; refuses those with NaN or without a token."""
        scores_NV = scores_NV.detach()
        rows = cls(scores_NV, scores_NV.shape[1])
        object.__setattr__(rows, "peak_N", peaks(scores_NV)[:, 0])  # found here already
        return rows

    @cached_property
    def score_NW(self) -> Tensor:
        """Scores up to a constant of the row; −∞ for a cut token."""
        if self.marks is None:
            return self.raw_NW
        # In arithmetic: a choice by a mask is several times slower, for it branches at every token.
        return torch.threshold(self.raw_NW + (self.marks.kept_NW - 1) * HUGE, -HUGE / 2, -math.inf)

    @cached_property
    def peak_N(self) -> Tensor:
        """The best score."""
        return self.score_NW.amax(dim=-1)

    @cached_property
    def weight_NW(self) -> Tensor:
        """Probabilities up to a factor of the row."""
        return self.raw_NW.softmax(dim=-1) if self.marks is None else self.marks.weight_NW

    @cached_property
    def mass_NB(self) -> Tensor:
        """The weight of every block of columns, in double precision."""
        return masses(self.weight_NW)

    @cached_property
    def total_N(self) -> Tensor:
        """The weight of every row, in double precision."""
        return self.mass_NB.sum(dim=-1)

    @cached_property
    def exact_total_N(self) -> Tensor:
        """The same without the rounding of the blocks' own sums, which takes ten times as long."""
        return self.weight_NW.double().sum(dim=-1)

    @cached_property
    def best_N(self) -> Tensor:
        """The largest weight."""
        return self.weight_NW.amax(dim=-1)

    @cached_property
    def scale_N(self) -> Tensor:
        """What the scores are above log-probabilities: log p = score − scale."""
        return self.peak_N.double() - (self.best_N / self.total_N).log()

    @cached_property
    def entropy_N(self) -> Tensor:
        """H = −Σ p log p = scale − Σ p·score."""
        return self.scale_N - self.mean_N

    @cached_property
    def mean_N(self) -> Tensor:
        """Σ p·score, in double precision."""
        term_NW = self.weight_NW * (self.raw_NW - self.peak_N[:, None])
        sum_N = term_NW.double().sum(dim=-1)
        if bool(sum_N.isnan().any()):  # 0 · −∞: a token that was cut adds nothing
            sum_N = term_NW.double().nan_to_num_(nan=0.0).sum(dim=-1)
        return self.peak_N + sum_N / self.total_N

    def alive(self) -> Shortlist:
        """Only the tokens that were not cut."""
        return self.keep(self.score_NW.numpy() > -np.inf)

    def keep(self, keep_NW: NDArray[np.bool_], sure_N: NDArray[np.bool_] | None = None) -> Shortlist:
        """Only the tokens that the mask names, and for which rows it is sure (all, where nothing is said)."""
        if sure_N is None or self.sure is None:
            sure_N = self.sure if sure_N is None else sure_N
        else:
            sure_N = sure_N & self.sure
        sizes = [int(np.count_nonzero(row)) for row in keep_NW]
        if max(sizes) * SHORTER > keep_NW.shape[1]:
            kept_NW = torch.from_numpy(keep_NW.view(np.uint8)).float()
            marks = Marks(kept_NW, self.weight_NW * kept_NW)
            return Shortlist(self.raw_NW, self.vocabulary, self.tokens, marks, sure_N)
        columns = [np.flatnonzero(row) for row in keep_NW]
        short_NW = _gathered(self.raw_NW, columns, -np.inf)
        tokens = columns if self.tokens is None else [t[c] for t, c in zip(self.tokens, columns, strict=True)]
        rows = Shortlist(short_NW, self.vocabulary, tuple(tokens), sure=sure_N)
        if self.marks is not None or "weight_NW" in self.__dict__:
            # Not computed anew: with a best token of its own, a list would have weights rounded otherwise.
            object.__setattr__(rows, "weight_NW", _gathered(self.weight_NW, columns, 0.0))
        return rows

    def draw(self, u_N: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The token of every row at the share u of its mass, its log-probability, and whether it is sure."""
        W = self.weight_NW.shape[1]
        found = seek(self.mass_NB, W, u_N, lambda column_NC: self.weight_NW.gather(1, column_NC))
        column_N = found.token_N
        logp_N = (self.weight_NW.gather(1, column_N[:, None])[:, 0] / self.total_N).log()
        sure_N = found.room() > doubt(u_N, BLOCKS)
        if self.sure is not None:
            sure_N &= torch.from_numpy(self.sure)
        if self.tokens is None:
            return column_N, logp_N, sure_N
        ids = [int(t[c]) for t, c in zip(self.tokens, column_N.tolist(), strict=True)]
        return torch.tensor(ids), logp_N, sure_N

    def whole(self) -> Tensor:
        """(N, V) log-probabilities, −∞ for every token that was cut."""
        logp_NW = self.score_NW.log_softmax(dim=-1)
        if self.tokens is None:
            return logp_NW
        logp_NV = logp_NW.new_full((len(self.tokens), self.vocabulary), -math.inf)
        for full_V, logp_W, token in zip(logp_NV.numpy(), logp_NW.numpy(), self.tokens, strict=True):
            full_V[token] = logp_W[: len(token)]
        return logp_NV


def _gathered(values_NW: Tensor, columns: Sequence[NDArray[np.int64]], rest: float) -> Tensor:
    """Some columns of every row, side by side, shorter rows filled up."""
    short_NW = np.full((len(columns), max(map(len, columns))), rest, dtype=np.float32)
    for row, (values_W, column) in enumerate(zip(values_NW.numpy(), columns, strict=True)):
        short_NW[row, : len(column)] = values_W[column]
    return torch.from_numpy(short_NW)
