"""Gumbel noise: the highest of perturbed log-probabilities are a sample without replacement.

    G = φ − log(−log u),   u uniform on (0, 1)        the k highest G: k draws from exp φ, none twice

    G' = −log( e^{−T} − e^{−Z} + e^{−G} ),  Z = max G      the same noise, told that its maximum is T

Kool, van Hoof & Welling 2019, Algorithm 1 (G' here in its numerically stable form; T is `maximum`).
papers.bib: kool2019stochastic

A request's noise comes from its own random stream, row after row: the rest of the batch does not change it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def perturb(scores_NV: Tensor, generators: Sequence[np.random.Generator], rows: Sequence[int]) -> Tensor:
    """Scores plus noise, in double precision; generator i serves the next rows[i] rows."""
    vocabulary = scores_NV.shape[1]
    u = np.concatenate([die.random((n, vocabulary)) for die, n in zip(generators, rows, strict=True)])
    u_NV = torch.from_numpy(u).to(scores_NV.device)
    return scores_NV - (-u_NV.log_()).log_()


def standard(generator: np.random.Generator) -> float:
    """One draw of the noise itself."""
    return float(generator.gumbel())


def conditioned(keys_NK: Tensor, maximum_N: Tensor) -> Tensor:
    """The highest perturbed scores of every row, moved so that the first is maximum_N; the order is kept."""
    top_N1, maximum_N1 = keys_NK.amax(dim=-1, keepdim=True), maximum_N[:, None]
    below_NK = maximum_N1 - keys_NK + torch.log1p(-torch.exp(keys_NK - top_N1))
    moved_NK = maximum_N1 - below_NK.clamp(min=0) - torch.log1p(torch.exp(-below_NK.abs()))
    return moved_NK.masked_fill(keys_NK == -torch.inf, -torch.inf)
