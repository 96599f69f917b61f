import math

import pytest
import torch
from hypothesis import given, settings, strategies as st

from unspool.decode.fast_sampling import draw_exactly, truncate_exactly
from unspool.decode.transforms import Epsilon, Eta, MinP, Temperature, TopA, TopK, TopNSigma, TopP, Typical

P = [0.05, 0.5, 0.15, 0.3]


def logs(p):
    return torch.tensor(p).log()


def kept(scores, rules):
    return (truncate_exactly(scores, rules) > -math.inf).nonzero()[:, 0].tolist()


@pytest.mark.parametrize(
    ("rule", "tokens"),
    [
        (TopK(3), [1, 2, 3]),
        (TopK(4), [0, 1, 2, 3]),
        (MinP(0.5), [1, 3]),
        (MinP(0.0), [0, 1, 2, 3]),
        (Epsilon(0.1), [1, 2, 3]),
        (Epsilon(0.9), [1]),
        # H = 1.1421, e^(−H) = 0.3191: √0.5 · e^(−H) = 0.2257; √0.16 · e^(−H) = 0.1277
        (Eta(0.5), [1, 3]),
        (Eta(0.16), [1, 2, 3]),
        (Eta(0.0), [0, 1, 2, 3]),
        (TopA(0.8), [1, 3]),
        (TopNSigma(1.0), [1, 3]),
        (TopP(0.79), [1, 3]),
        (TopP(0.81), [1, 2, 3]),
        (TopP(1.0), [0, 1, 2, 3]),
        (Typical(0.29), [3]),
        (Typical(0.31), [1, 3]),
        (Typical(1.0), [0, 1, 2, 3]),
        (Temperature(3.0), [0, 1, 2, 3]),
    ],
    ids=repr,
)
def test_kept_tokens_by_hand(rule, tokens):
    assert kept(logs(P), [rule]) == tokens
    ids = [0, 200, 300, 600]
    scattered = torch.zeros(900)
    scattered[ids] = torch.tensor(P)
    assert kept(scattered.log(), [rule]) == [ids[token] for token in tokens]


def test_ties_at_the_edge():
    p = [0.1, 0.2, 0.1, 0.4, 0.1, 0.1]
    assert kept(logs(p), [TopP(0.75)]) == [0, 1, 2, 3]
    assert kept(logs(p), [TopK(3)]) == [0, 1, 2, 3, 4, 5]
    assert kept(torch.zeros(9), [Typical(0.5)]) == list(range(9))


@pytest.mark.parametrize(
    ("u", "token"), [(0.0, 1), (0.52, 1), (0.53, 2), (0.684, 2), (0.685, 3), (1 - 1e-16, 3)]
)
def test_drawn_tokens_by_hand(u, token):
    found, logp = draw_exactly(logs(P), [TopP(0.9)], u)
    assert (found, math.exp(logp)) == (token, pytest.approx(P[token] / 0.95))


def test_a_temperature_so_low_that_only_the_best_is_truncate_exactly():
    assert draw_exactly(logs(P), [Temperature(1e-40)], 0.0) == (1, 0.0)
    assert draw_exactly(logs(P), [Temperature(1e-40)], 1 - 1e-16) == (1, 0.0)


RULE = st.one_of(
    st.builds(TopP, st.floats(0.05, 0.999)),
    st.builds(MinP, st.floats(0, 1)),
    st.builds(Epsilon, st.floats(0, 0.3)),
    st.builds(Eta, st.floats(0, 0.3)),
    st.builds(TopA, st.floats(0, 1)),
    st.builds(TopNSigma, st.floats(0.1, 4)),
    st.builds(Typical, st.floats(0.05, 0.999)),
    st.builds(TopK, st.integers(1, 200)),
)


@settings(deadline=None, max_examples=100)
@given(rule=RULE, seed=st.integers(0, 999))
def test_it_keeps_what_the_transform_keeps_in_float64(rule, seed):
    scores = 2 * torch.randn(1, 1500, generator=torch.Generator().manual_seed(seed))
    defined = rule.keeps(scores.double().log_softmax(dim=-1))[0].nonzero()[:, 0].tolist()
    assert kept(scores[0], [rule]) == defined
