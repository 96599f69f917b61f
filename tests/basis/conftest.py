from dataclasses import dataclass

import numpy as np
import pytest

from unspool.basis.arrays import as_distribution
from unspool.basis.solver.distribution import Distribution
from unspool.basis.solver.proof_attempts import SharedFactors
from unspool.basis.solver.whitening import whiten

TAUS = (0.001, 0.01, 0.05, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99)


@dataclass
class Problem:
    W: np.ndarray
    p: np.ndarray
    rank: int | None
    token: int
    tau: float


def softmax(z):
    p = np.exp(z - z.max())
    return p / p.sum()


def random_W(rng, vocabulary, width):
    """Gaussian rows, or rows of every kind that makes a linear program degenerate."""
    W = rng.standard_normal((vocabulary, width)) * 10.0 ** rng.uniform(-2, 1)
    match int(rng.integers(6)):
        case 1:  # duplicate rows
            W[rng.integers(vocabulary, size=vocabulary // 3)] = W[rng.integers(vocabulary)]
        case 2:  # a constant column, which says what the ones say
            W[:, rng.integers(width)] = rng.choice([0.0, 1.0, 3.0])
        case 3:  # dependent columns
            W[:, -1] = 2 * W[:, 0]
        case 4:  # a lattice: many ties
            W = np.round(W)
        case 5:  # zero rows
            W[rng.integers(vocabulary, size=vocabulary // 4)] = 0
    return W.astype(rng.choice([np.float32, np.float64]))


def random_p(rng, W):
    """Flat, uniform, near one-hot, sparse, or what a model with these W would say."""
    vocabulary, width = W.shape
    match int(rng.integers(5)):
        case 0:
            return softmax(0.1 * rng.standard_normal(vocabulary))
        case 1:
            return softmax(np.zeros(vocabulary))
        case 2:
            z = rng.standard_normal(vocabulary)
            z[rng.integers(vocabulary)] += rng.uniform(5, 15)
            return softmax(z)
        case 3:
            return rng.dirichlet(np.full(vocabulary, 0.2)) * (1 - 1e-9) + 1e-9 / vocabulary
        case _:
            return softmax(np.clip(W @ rng.standard_normal(width) * rng.uniform(0.1, 2), -15, 15))


@pytest.fixture
def random_problem():
    """random_problem(rng): a small problem with a token that is not too improbable for a general solver."""

    def make(rng):
        vocabulary, width = int(rng.integers(2, 301)), int(rng.integers(1, 21))
        W = random_W(rng, vocabulary, width)
        p = random_p(rng, W)
        rank = None if rng.random() < 0.6 else int(rng.integers(0, width + 1))
        token = int(rng.choice(np.flatnonzero(p > 1e-5)))
        return Problem(W, p, rank, token, float(rng.choice(TAUS)))

    return make


@pytest.fixture
def example():
    """The paper's: p̂ = (.331, .498, .171); with δ = log 1.9 token 0 is rejected, the others are accepted."""
    W = np.array([[0.55], [0.71], [0.29]])
    return Problem(W, softmax(2.55 * W[:, 0]), None, 0, 1 - 1 / 1.9)


@dataclass
class Model:
    """A made-up output layer of the size that the whole cascade has work with."""

    W: np.ndarray

    def p(self, seed, spread=3.0):
        rng = np.random.default_rng(seed)
        direction = rng.standard_normal(self.W.shape[1]) / np.sqrt(self.W.shape[1])
        return softmax(spread * self.W @ direction)


@pytest.fixture(scope="session")
def model():
    """6,000 tokens, width 24; a few common tokens have long rows, as in real models."""
    rng = np.random.default_rng(0)
    W = rng.standard_normal((6000, 24)) * (1 + 2 * rng.random((6000, 1)) ** 8)
    return Model((W + 0.5).astype(np.float32))


@pytest.fixture(scope="session")
def white(model):
    return whiten(model.W)


@pytest.fixture
def factors(model, white):
    """A workbench for one of the model's distributions."""

    def make(seed=0, spread=3.0):
        work = SharedFactors(white, as_distribution(model.p(seed, spread), len(model.W)))
        work.dist.extend_head(4096)
        return work

    return make


@pytest.fixture
def dist(model, white):
    return Distribution(as_distribution(model.p(0), len(model.W)), white.X_VK.shape[1], head=4096)
