import numba
import numpy as np
import pytest
import torch

from unspool.decode.fast_sampling import draw_exactly, encode
from unspool.decode.transforms import Eta, MinP, Temperature, TopK, TopP, Typical
from unspool.engine import (
    EPSILON,
    ETA,
    MIN_P,
    TEMPERATURE,
    TOP_A,
    TOP_K,
    TOP_N_SIGMA,
    TOP_P,
    TYPICAL,
    sampling,
)
from unspool.engine.sampling_passes import Scratch

from .conftest import new_scratch

P = np.array([0.05, 0.5, 0.15, 0.3])


@numba.njit
def draw_row(scores, kinds, values, u, scratch):
    return sampling.draw_row(scores, scores.size, kinds, values, u, scratch)


@numba.njit
def up(value):
    return sampling.round_up(value)


def drawn(p, rules, u):
    kinds, values = np.array([k for k, _ in rules], np.int64), np.array([v for _, v in rules], np.float64)
    with np.errstate(divide="ignore"):
        scores = np.log(p).astype(np.float32)
    token, logp, sure = draw_row(scores, kinds, values, u, Scratch(*new_scratch(len(p))))
    return token, pytest.approx(np.exp(logp), rel=1e-5), sure


@pytest.mark.parametrize(
    ("rules", "u", "token", "p"),
    [
        ([], 0.04, 0, 0.05),
        ([], 0.56, 2, 0.15),
        ([(TOP_K, 2)], 0.6, 1, 0.625),
        ([(TOP_K, 2)], 0.63, 3, 0.375),
        ([(TOP_P, 0.9)], 0.01, 1, 0.5 / 0.95),
        ([(MIN_P, 0.5)], 0.99, 3, 0.375),
        ([(EPSILON, 0.1)], 0.6, 2, 0.15 / 0.95),
        ([(ETA, 0.5)], 0.99, 3, 0.375),
        ([(TOP_A, 0.8)], 0.01, 1, 0.625),
        ([(TOP_N_SIGMA, 1.0)], 0.99, 3, 0.375),
        ([(TYPICAL, 0.2)], 0.5, 3, 1.0),
        ([(TEMPERATURE, 0.5)], 0.5, 1, 0.25 / 0.365),
        ([(TYPICAL, 0.2), (TEMPERATURE, 0.5), (TOP_P, 0.5)], 0.5, 3, 1.0),
        ([(TOP_K, 3), (TEMPERATURE, 0.5), (TOP_P, 0.9)], 0.9, 3, 0.09 / 0.34),
    ],
)
def test_by_hand(rules, u, token, p):
    assert drawn(P, rules, u) == (token, p, True)


@pytest.mark.parametrize("rules", [[], [(TOP_K, 1)], [(TOP_P, 0.5)], [(TYPICAL, 0.5)], [(TEMPERATURE, 3.0)]])
def test_a_row_of_one_token(rules):
    assert drawn(np.array([1.0]), rules, 0.5) == (0, 1.0, True)
    assert drawn(np.array([0.0] * 99 + [1.0]), rules, 0.5) == (99, 1.0, True)


@pytest.mark.parametrize("wrong", [np.nan, -np.inf, np.inf])
def test_an_invalid_row_is_not_certain(wrong):
    scores = np.full(40, wrong, np.float32)
    none = np.zeros(0, np.int64), np.zeros(0)
    assert not draw_row(scores, *none, 0.5, Scratch(*new_scratch(40)))[2]


def test_rounding_up():
    assert up(0.1) >= 0.1 > np.nextafter(up(0.1), np.float32(-1))
    assert up(0.5) == 0.5
    assert up(-np.inf) == np.finfo(np.float32).min


CHAINS = [
    (),
    (TopK(40),),
    (TopP(0.9),),
    (MinP(0.05),),
    (Typical(0.9),),
    (Eta(1e-3),),
    (Temperature(0.7), TopP(0.8)),
]


@pytest.mark.parametrize("chain", CHAINS, ids=repr)
@pytest.mark.parametrize("vocabulary", [1, 50, 4099, 200_000])
@pytest.mark.parametrize("threads", [1, 3])
def test_any_vocabulary_on_any_number_of_threads(chain, vocabulary, threads, monkeypatch):
    monkeypatch.setattr(sampling, "WORTH_SHARING", 0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    if vocabulary < 40:
        chain = tuple(rule for rule in chain if rule != TopK(40))
    rng = np.random.default_rng(vocabulary)
    scores = 2 * rng.normal(size=(6, vocabulary)).astype(np.float32)
    before, u = scores.copy(), rng.random(6)
    found = sampling.draw(scores, *encode(chain), u)
    # If 200,000 tokens crowd around a threshold, half of the rows are uncertain.
    assert found.certain.sum() >= (2 if vocabulary == 200_000 else 5)
    for row in np.flatnonzero(found.certain):
        token, logp = draw_exactly(torch.from_numpy(scores[row]), chain, u[row])
        assert (found.token[row], found.logp[row]) == (token, pytest.approx(logp, abs=2e-6))
    np.testing.assert_array_equal(scores, before)
