"""Rows of scores to try every transform on: random ones, and ones made to break it."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

SCALES = (0.0, 0.1, 1.0, 3.0, 8.0, 50.0, 1000.0)


def _kinds(rows: int, V: int, seed: int) -> dict[str, Tensor]:
    """The same rows as they are, rounded so that they tie, and with half of their tokens cut."""
    generator = torch.Generator().manual_seed(seed)
    scale_N1 = torch.tensor(SCALES).repeat(rows)[:rows, None]
    logits_NV = torch.randn(rows, V, generator=generator) * scale_N1
    cut_NV = logits_NV.masked_fill(torch.rand(rows, V, generator=generator) < 0.5, -math.inf)
    cut_NV[:, seed % V] = 0
    return {"plain": logits_NV, "ties": (logits_NV * 2).round() / 2, "cut": cut_NV}


@pytest.fixture(scope="session")
def matrices() -> dict[str, Tensor]:
    """Normalised log-probabilities, thousands of rows, 1 to 200,000 columns."""
    found: dict[str, Tensor] = {}
    sizes = ((1, 7), (2, 140), (3, 210), (5, 420), (17, 420), (100, 420), (600, 280), (5000, 28))
    for V, rows in sizes:
        found |= {f"{V} {kind}": logits for kind, logits in _kinds(rows, V, seed=V).items()}
    for V in (50_000, 200_000):
        kinds = _kinds(7, V, seed=V)
        found |= {
            f"{V} plain": kinds["plain"][1:5],
            f"{V} ties": kinds["ties"][2:4],
            f"{V} cut": kinds["cut"][2:4],
        }
    for V in (2, 40, 50_000):
        one_hot_NV = torch.full((2, V), -math.inf)
        one_hot_NV[0, 0] = one_hot_NV[1, V - 1] = 0
        found[f"{V} one-hot"] = one_hot_NV
    return {name: logits.log_softmax(dim=-1) for name, logits in found.items()}


def _small(rows: int, V: int, seed: int) -> Tensor:
    """Scores of a few levels (ties), some with noise on them, some cut; one at least alive in every row."""
    generator = torch.Generator().manual_seed(seed)
    scores_NV = -torch.randint(0, 5, (rows, V), generator=generator).float()
    noisy_NV = scores_NV - 8 * torch.rand(rows, V, generator=generator)
    scores_NV = torch.where(torch.rand(rows, V, generator=generator) < 0.5, scores_NV, noisy_NV)
    chance_NV = torch.rand(rows, V, generator=generator)
    scores_NV = scores_NV.masked_fill(chance_NV < 0.1, -math.inf).masked_fill(chance_NV > 0.95, -1e4)
    scores_NV[torch.arange(rows), torch.randint(0, V, (rows,), generator=generator)] = -1.0
    return scores_NV.log_softmax(dim=-1)


@pytest.fixture(scope="session")
def any_scores() -> st.SearchStrategy[Tensor]:
    """Small matrices of normalised scores, with ties and −∞ among them."""
    return st.builds(_small, st.integers(1, 4), st.integers(1, 9), st.integers(0, 2**32))
