"""Fast sampling: draw tokens with compiled kernels, if numba is installed and they are faster.

    y ~ f_k(… f_1(log p) …),   and the log-probability of y in the distribution that it was drawn from

The kernels (`engine.sampling`) implement the transforms in `KERNELS` and draw the token that the transforms
and `Multinomial` define for the same random number, without sorting or normalising the vocabulary. They
compute in float32 and know a bound on their rounding error. If rounding could change the token of a row, the
transforms themselves draw it in float64, so that the token is the same on every processor:

    w_i = e^(s_i − base),   the difference in float32, e^x and all sums in float64
    y = min { i : Σ_{j≤i, j kept} w_j > u · Σ_{j kept} w_j }

base is the best score after the last temperature.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unspool import engine
from unspool.decode.multinomial import token_at
from unspool.decode.transforms.nucleus import TopP, Typical
from unspool.decode.transforms.scores import cut, peaks
from unspool.decode.transforms.temperature import MAX_TEMPERATURE, MIN_TEMPERATURE, Temperature
from unspool.decode.transforms.thresholds import Epsilon, Eta, MinP, TopA, TopK, TopNSigma
from unspool.interfaces import Step, Transform

USE_KERNELS = engine.compiler_obstacle() is None
"""False without numba: the transforms and picks themselves run then."""
MIN_VOCABULARY = 4096
"""In smaller vocabularies the transforms themselves are faster."""
MAX_BEST_TOKENS = 128
"""To find more best tokens of a row than this, sorting the row is faster."""

KERNELS: dict[type, Callable[[Any], tuple[int, float]]] = {
    Temperature: lambda rule: (engine.TEMPERATURE, min(max(rule.t, MIN_TEMPERATURE), MAX_TEMPERATURE)),
    TopK: lambda rule: (engine.TOP_K, rule.k),
    MinP: lambda rule: (engine.MIN_P, rule.m),
    TopNSigma: lambda rule: (engine.TOP_N_SIGMA, rule.n),
    Epsilon: lambda rule: (engine.EPSILON, rule.epsilon),
    Eta: lambda rule: (engine.ETA, rule.eta),
    TopA: lambda rule: (engine.TOP_A, rule.a),
    TopP: lambda rule: (engine.TOP_P, rule.p),
    Typical: lambda rule: (engine.TYPICAL, rule.tau),
}
"""Transform → the code of its kernel, and its parameter."""


def can_compile(*tensors: Tensor) -> bool:
    """True if kernels can read these tensors: float32 on a CPU, with numba."""
    return USE_KERNELS and all(
        tensor.dtype == torch.float32 and tensor.device.type == "cpu" for tensor in tensors
    )


def is_faster(scores_NV: Tensor) -> bool:
    """True if kernels can draw from these scores and the vocabulary is large enough."""
    return scores_NV.shape[1] >= MIN_VOCABULARY and can_compile(scores_NV)


def split(transforms: Sequence[Transform]) -> tuple[Sequence[Transform], Sequence[Transform]]:
    """The transforms to apply one by one, and the last ones, which all have kernels."""
    first = len(transforms)
    while first and type(transforms[first - 1]) in KERNELS:
        first -= 1
    return transforms[:first], transforms[first:]


@lru_cache(maxsize=64)
def encode(rules: tuple[Transform, ...]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The codes and parameters of transforms for the kernel; Temperature(1.0) is left out."""
    codes = [KERNELS[type(rule)](rule) for rule in rules if rule != Temperature(1.0)]
    return (
        np.array([code for code, _ in codes], np.int64),
        np.array([parameter for _, parameter in codes], np.float64),
    )


def draw(scores_NV: Tensor, rules: Sequence[Transform], u_N: Tensor) -> tuple[Tensor, Tensor]:
    """(N) tokens, each at the share u of the mass that the rules keep, and (N) their log-probabilities."""
    from unspool.engine import sampling  # imports numba

    for rule in rules:
        if isinstance(rule, TopK) and rule.k > scores_NV.shape[1]:
            rule.keeps(scores_NV)  # raises its error
    scores = scores_NV.detach().contiguous().numpy()
    drawn = sampling.draw(scores, *encode(tuple(rules)), u_N.numpy())
    if not drawn.certain.all():
        peaks(scores_NV)
        for row in np.flatnonzero(~drawn.certain):
            drawn.token[row], drawn.logp[row] = draw_exactly(scores_NV[row], rules, float(u_N[row]))
    return torch.from_numpy(drawn.token), torch.from_numpy(drawn.logp)


def truncate_exactly(scores_V: Tensor, rules: Sequence[Any]) -> Tensor:
    """(V) in float64: s − base of the tokens that the rules keep, −∞ for the others."""
    scores_1V = scores_V[None]
    base = scores_V.max()
    for rule in rules:
        if not isinstance(rule, Temperature):
            scores_1V = cut(scores_1V, rule.keeps((scores_1V - base).double()))
        elif rule.t != 1:
            scores_1V = rule(scores_1V, Step(scores_1V), ())
            base = scores_1V.max()
    return (scores_1V - base).double()[0]


def draw_exactly(scores_V: Tensor, rules: Sequence[Transform], u: float) -> tuple[int, float]:
    """The token at the share u of the mass that the rules keep, and its log-probability."""
    below_V = truncate_exactly(scores_V, rules)
    token = token_at(below_V.exp(), u)
    return token, (below_V[token] - below_V.logsumexp(dim=-1)).item()


def best_tokens(scores_NV: Tensor, k: int) -> tuple[Tensor, Tensor] | None:
    """(N, k) scores, best first, and their tokens; None if torch must find them.

    Among ties the lower id is first.
    A row with fewer than k tokens that are not cut ends with score −∞ and token 0.
    """
    if not 0 < k <= MAX_BEST_TOKENS or not can_compile(scores_NV):
        return None
    from unspool.engine import best_tokens as kernels  # imports numba

    return kernels.best_tokens(scores_NV, k)
