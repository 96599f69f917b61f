import itertools
from math import log

import numpy as np
import pytest
import torch

from unspool.basis import Acceptance, BasisTest, Rejection

W3 = np.array([[0.55], [0.71], [0.29]])
P3 = np.exp(W3[:, 0] * 2.55) / np.exp(W3[:, 0] * 2.55).sum()


def problem(dice):
    """A random W, p and τ, with the oddities of real ones."""
    v, d = int(dice.integers(2, 60)), int(dice.integers(1, 12))
    if dice.random() < 0.04:
        v, d = int(dice.integers(200, 301)), int(dice.integers(10, 21))
    W = dice.normal(size=(v, d)) * dice.choice([1e-2, 1.0, 30.0])
    oddity = dice.integers(0, 5)
    if oddity == 1:
        W[dice.integers(0, v, size=v // 2)] = W[0]
    elif oddity == 2:
        W[dice.integers(0, v, size=v // 3 + 1)] = 0
    elif oddity == 3:
        W[:, 0] = 2.5
    sharpness = dice.choice([0.05, 1.0, 3.0, 6.0])
    logits = sharpness * dice.normal(size=v)
    if dice.random() < 0.1:
        logits[dice.integers(v)] = logits.max() + 8  # near one-hot
    p = np.exp(np.maximum(logits - logits.max(), -18))  # HiGHS takes no coefficients of 10¹⁵
    return W, p / p.sum(), float(dice.choice([0.01, 0.05, 0.1, 0.3, 0.5, 0.9]))


def test_the_papers_three_tokens():
    np.testing.assert_allclose(P3, [0.331, 0.498, 0.171], atol=5e-4)
    test = BasisTest(W3)
    verdicts = [test.accepts(P3, i, delta=log(1.9)) for i in range(3)]
    assert [bool(v) for v in verdicts] == [False, True, True]
    assert isinstance(verdicts[0].certificate, Rejection)
    assert isinstance(verdicts[2].certificate, Acceptance)
    tau = 1 - 1 / 1.9
    assert (tau < P3).tolist() == [False, True, False]
    assert BasisTest(W3, rank=0).mask(P3, tau).tolist() == [False, True, False]
    witness = verdicts[0].certificate.distribution(P3)
    assert witness[0] == 0
    np.testing.assert_allclose(W3.T @ witness, W3.T @ P3, atol=1e-12)
    assert witness.sum() == pytest.approx(1)
    assert (witness <= 1.9 * P3 + 1e-12).all()


@pytest.mark.parametrize("seed", range(10))
def test_verdicts_are_those_of_a_general_solver_and_their_proofs_hold(seed):
    dice, both = np.random.default_rng(seed), set()
    for _ in range(55):
        W, p, tau = problem(dice)
        test, i = BasisTest(W), int(dice.choice(len(p), p=(p + 1 / len(p)) / 2))
        verdict, truth = test.accepts(p, i, tau=tau), test.reference(p, i, tau)
        if verdict.decided:
            assert test.check(verdict.certificate, p, tau)
            assert verdict.accepted == truth.accepted or truth.near
        else:
            assert truth.near
            assert not verdict
            assert verdict.how == "undecided"
        both.add(verdict.accepted)
    assert both == {True, False}


@pytest.mark.parametrize(
    ("p", "said"),
    [
        ([np.nan, 0.5, 0.5], "NaN"),
        ([-0.1, 0.6, 0.5], "not negative"),
        ([1.0, 2.0, 3.0], "sums to 6"),
        ([0.5, 0.5], "3 rows"),
        ([[0.2, 0.3, 0.5]], "3 rows"),
    ],
)
def test_what_is_no_distribution_is_refused(p, said):
    with pytest.raises(ValueError, match=said):
        BasisTest(W3).accepts(np.array(p), 1, tau=0.5)


@pytest.mark.parametrize(
    "bound", [{"tau": 0.0}, {"tau": 1.0}, {"tau": -1.0}, {"delta": 0.0}, {"delta": np.inf}]
)
def test_bounds_outside_their_range_are_refused(bound):
    with pytest.raises(ValueError, match=f"{next(iter(bound))} is"):
        BasisTest(W3).accepts(P3, 1, **bound)


@pytest.mark.parametrize(("bounds", "said"), [({}, "neither"), ({"tau": 0.1, "delta": 0.1}, "both")])
def test_one_bound_is_needed(bounds, said):
    with pytest.raises(ValueError, match=said):
        BasisTest(W3).accepts(P3, 1, **bounds)


def test_tokens_that_cannot_be_tested_are_refused():
    with pytest.raises(ValueError, match="probability zero"):
        BasisTest(W3).accepts([0.5, 0.5, 0.0], 2, tau=0.1)
    for i in (3, -1):
        with pytest.raises(IndexError, match="not in the vocabulary"):
            BasisTest(W3).accepts(P3, i, tau=0.1)


def test_ranks_that_w_does_not_have_are_refused():
    with pytest.raises(ValueError, match="rank is 2; W has 1 columns"):
        BasisTest(W3, rank=2)
    with pytest.raises(ValueError, match="expected \\(vocabulary, width\\)"):
        BasisTest(W3[:, 0])
    with pytest.raises(ValueError, match="NaN or infinite"):
        BasisTest(np.array([[1.0], [np.inf]]))


def test_a_mask_is_its_verdicts_one_by_one():
    dice = np.random.default_rng(1)
    W, p = dice.normal(size=(60, 6)), dice.dirichlet(np.full(60, 0.3), size=2)
    p = (p + 1e-9) / (p + 1e-9).sum(axis=1, keepdims=True)
    test = BasisTest(W)
    mask = test.mask(p, 0.2)
    alone = [[bool(test.accepts(p_V, i, tau=0.2)) for i in range(60)] for p_V in p]
    assert mask.tolist() == alone
    assert 0 < mask.sum() < mask.size
    top = test.mask(p[0], 0.2, top=5)
    assert set(np.flatnonzero(top)) == set(np.flatnonzero(mask[0])) & set(np.argsort(-p[0])[:5])
    floor = test.mask(p[0], 0.2, floor=0.01)
    assert floor.tolist() == (mask[0] & (p[0] >= 0.01)).tolist()


def test_a_higher_rank_accepts_no_less():
    dice = np.random.default_rng(2)
    W, p = dice.normal(size=(80, 8)), dice.dirichlet(np.ones(80))
    masks = [BasisTest(W, rank=r).mask(p, 0.1) for r in (0, 2, 5, 8)]
    assert all((low <= high).all() for low, high in itertools.pairwise(masks))
    assert masks[0].sum() < masks[-1].sum()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_torch_tensors_of_any_float_type_are_taken(dtype):
    dice = np.random.default_rng(3)
    W, p = torch.tensor(dice.normal(size=(50, 5))).to(dtype), torch.tensor(dice.dirichlet(np.full(50, 0.5)))
    p = (p + 1e-9) / (p + 1e-9).sum()
    same = BasisTest(W.double().numpy())
    mask = BasisTest(W).mask(p, 0.05)
    assert mask.tolist() == same.mask(p.numpy(), 0.05).tolist()
    assert 0 < mask.sum() < 50


def test_what_the_test_says_of_itself():
    assert repr(BasisTest(np.eye(5, 3), rank=2)) == "BasisTest(vocabulary=5, rank=2)"
    assert BasisTest(W3).m == 2
    assert BasisTest(np.ones((4, 2))).m == 1
