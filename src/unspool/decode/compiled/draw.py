"""The compiled way from scores to tokens, as Python calls it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unspool.decode.compiled.chain import (
    EPSILON,
    ETA,
    MIN_P,
    TEMPERATURE,
    TOP_A,
    TOP_K,
    TOP_N_SIGMA,
    TOP_P,
    TYPICAL,
    Drawn,
    draw_rows,
)
from unspool.decode.compiled.row_scratch import rooms
from unspool.decode.transforms.epsilon import Epsilon
from unspool.decode.transforms.eta import Eta
from unspool.decode.transforms.min_p import MinP
from unspool.decode.transforms.temperature import COLDEST, HOTTEST, Temperature
from unspool.decode.transforms.top_a import TopA
from unspool.decode.transforms.top_k import TopK
from unspool.decode.transforms.top_n_sigma import TopNSigma
from unspool.decode.transforms.top_p import TopP
from unspool.decode.transforms.typical import Typical
from unspool.protocols import Transform

WORTH_SHARING = 200_000
"""Scores below which waking other threads takes longer than they would save."""

Code = tuple[int, float]
CODES: dict[type, Callable[[Any], Code]] = {
    Temperature: lambda rule: (TEMPERATURE, min(max(rule.t, COLDEST), HOTTEST)),
    TopK: lambda rule: (TOP_K, rule.k),
    MinP: lambda rule: (MIN_P, rule.m),
    TopNSigma: lambda rule: (TOP_N_SIGMA, rule.n),
    Epsilon: lambda rule: (EPSILON, rule.epsilon),
    Eta: lambda rule: (ETA, rule.eta),
    TopA: lambda rule: (TOP_A, rule.a),
    TopP: lambda rule: (TOP_P, rule.p),
    Typical: lambda rule: (TYPICAL, rule.tau),
}


@lru_cache(maxsize=64)
def coded(rules: tuple[Transform, ...]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Which rules, and their parameters."""
    codes = [CODES[type(rule)](rule) for rule in rules if rule != Temperature(1.0)]
    return np.array([kind for kind, _ in codes], np.int64), np.array(
        [value for _, value in codes], np.float64
    )


def draw(scores_NV: NDArray[np.float32], rules: Sequence[Transform], u_N: NDArray[np.float64]) -> Drawn:
    """For every row the token at the share u of the mass that the rules leave."""
    kinds, values = coded(tuple(rules))
    N = len(u_N)
    drawn = Drawn(np.empty(N, np.int64), np.empty(N, np.float64), np.empty(N, np.bool_))
    threads = 1 if scores_NV.size < WORTH_SHARING or N == 1 else min(N, torch.get_num_threads())
    memory, turns = rooms(threads, scores_NV.shape[1]), np.zeros(4, np.int64)
    draw_rows.shared(threads, scores_NV, kinds, values, u_N, drawn, memory, turns)
    return drawn
