from math import log

import numpy as np
import pytest
import torch

from unspool.basis import BasisTest
from unspool.basis.theory import Acceptance, Rejection, Verdict, tau_from_delta, tau_from_slope
from unspool.basis.verifier import verify_certificate


def test_the_papers_example(example):
    test = BasisTest(example.W)
    assert example.p == pytest.approx([0.331, 0.498, 0.171], abs=5e-4)
    assert [bool(test.accepts(example.p, i, tau=tau_from_delta(log(1.9)))) for i in range(3)] == [
        False,
        True,
        True,
    ]
    assert test.mask(example.p, example.tau).tolist() == [False, True, True]
    assert (example.p > example.tau).tolist() == [False, True, False]  # what the threshold alone keeps


def test_verdicts_are_those_of_a_general_solver(random_problem):
    """520 small problems, degenerate ones among them; every certificate is verified, whatever found it."""
    rng, hows = np.random.default_rng(1), set()
    for number in range(520):
        it = random_problem(rng)
        test = BasisTest(it.W, it.rank)
        verdict, expected = (
            test.accepts(it.p, it.token, tau=it.tau),
            test.solve_linear_program(it.p, it.token, it.tau),
        )
        about = f"problem {number}: {it.W.shape}, rank {it.rank}, tau {it.tau}, theta {expected.theta}"
        assert verdict.decided or expected.is_borderline, about
        if verdict.decided:
            assert test.verify(verdict.certificate, it.p, it.tau), about
            assert verdict.accepted == expected.accepted or expected.is_borderline, about
            optimum, slack = it.p[it.token] * expected.theta, it.p[it.token] * expected.tolerance
            assert verdict.low <= optimum * (1 + 1e-5) + slack, about
            assert verdict.high >= optimum * (1 - 1e-5) - slack, about
        hows.add(verdict.method)
    assert hows >= {"threshold", "least squares", "douglas-rachford", "interior point"}


@pytest.mark.parametrize("b", [1e3, 1e6, 3e8, 9e9, 1e12, 1e15, 1e100])
def test_a_huge_row_without_probability_hides_no_direction(b):
    """Only token 2 and a row of p̂ = 10⁻³⁰ go in the second direction: nothing can replace token 2."""
    W, p = np.array([[0.0, 0.0], [2.0, 0.0], [1.0, 1.0], [0.0, b]]), np.array([0.45, 0.45, 0.1, 1e-30])
    test = BasisTest(W)
    verdict = test.accepts(p, 2, tau=0.5)
    assert verdict.accepted or not verdict.decided
    assert verdict.accepted == (b <= 1e12)  # beyond, float64 does not find the proof
    if verdict.decided:
        assert test.verify(verdict.certificate, p, 0.5)


def test_a_tiny_group_beside_disturbs_nobody():
    W, p = np.eye(2)[[0, 0, 1, 1]], np.array([0.5 - 1e-7, 0.5 - 1e-7, 1e-7, 1e-7])
    test = BasisTest(W)
    verdict = test.accepts(p, 1, tau=0.99)
    assert verdict.decided
    assert not verdict.accepted
    assert test.verify(verdict.certificate, p, 0.99)
    assert verify_certificate(verdict.certificate, W, p, 0.99)


def test_a_higher_rank_accepts_no_less(model):
    p = model.p(3)
    tokens = np.argsort(-p)[5:80:9]
    before = np.zeros(len(tokens), dtype=bool)
    for rank in (0, 3, 8, 16, 24):
        step = BasisTest(model.W, rank).step(p)
        now = np.array([bool(v) for v in step.verdicts(map(int, tokens), tau=0.05)])
        assert (now >= before).all()
        before = now
    assert before.any()


def test_a_larger_tau_accepts_no_more(model):
    test, p = BasisTest(model.W), model.p(3)
    step = test.step(p)
    for i in map(int, np.argsort(-p)[3:60:11]):
        verdicts = [bool(step.accepts(i, tau=tau)) for tau in (0.001, 0.01, 0.1, 0.5, 0.95)]
        assert verdicts == sorted(verdicts, reverse=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_torch_in_any_precision(model, dtype):
    W = torch.from_numpy(model.W).to(dtype)
    p = torch.from_numpy(model.p(0)).float()
    test, same = BasisTest(W), BasisTest(W.double().numpy())
    assert test.mask(p, 0.1, top=12).tolist() == same.mask(p.double().numpy(), 0.1, top=12).tolist()
    verdict = test.accepts(p, int(p.argmax()), tau=0.999)
    assert verify_certificate(verdict.certificate, W.double(), p, 0.999)


def test_a_memory_map_will_do(tmp_path, model):
    np.save(tmp_path / "W.npy", model.W)
    W = np.load(tmp_path / "W.npy", mmap_mode="r")
    assert (
        BasisTest(W).mask(model.p(0), 0.1, top=9).tolist()
        == BasisTest(model.W).mask(model.p(0), 0.1, top=9).tolist()
    )


def test_a_batch_is_its_rows(model):
    test, p = BasisTest(model.W, 8), np.stack([model.p(0), model.p(1)])
    assert test.mask(p, 0.1, top=10).tolist() == [test.mask(row, 0.1, top=10).tolist() for row in p]


def test_the_input_is_untouched(model):
    W, p = model.W.copy(), model.p(0)
    before = p.copy()
    BasisTest(W).mask(p, 0.1, top=20)
    assert (W == model.W).all()
    assert (p == before).all()


def test_tokens_without_probability_change_nothing(model):
    p = model.p(0).copy()
    cut = np.argsort(-p)[500:]
    p[cut] = 0
    p /= p.sum()
    few = np.setdiff1d(np.arange(len(p)), cut)
    whole, part = BasisTest(model.W), BasisTest(model.W[few])
    tokens = np.argsort(-p)[:40:5]
    verdicts = [bool(whole.accepts(p, int(i), tau=0.1)) for i in tokens]
    assert verdicts == [bool(part.accepts(p[few], int(np.searchsorted(few, i)), tau=0.1)) for i in tokens]


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda t, p: t.accepts(p[:-1], 0, tau=0.1), ValueError, "one probability per row of W"),
        (lambda t, p: t.accepts(p * np.nan, 0, tau=0.1), ValueError, "contains nan"),
        (lambda t, p: t.accepts(-p, 0, tau=0.1), ValueError, "log-probabilities"),
        (lambda t, p: t.accepts(2 * p, 0, tau=0.1), ValueError, "sums to 2"),
        (lambda t, p: t.accepts(p, 0, tau=1.0), ValueError, "0 < tau < 1"),
        (lambda t, p: t.accepts(p, 6000, tau=0.1), ValueError, "token is 6000"),
        (lambda t, p: t.accepts(p, 1.5, tau=0.1), TypeError, "token is 1.5"),
        (lambda t, p: BasisTest(np.eye(3), 4), ValueError, "rank is 4, which is more than 3"),
        (lambda t, p: BasisTest(np.eye(3), -1), ValueError, "rank is -1"),
    ],
)
def test_errors_say_what_is_wrong(model, call, error, match):
    with pytest.raises(error, match=match):
        call(BasisTest(model.W, 2), model.p(0))


def test_a_budget_bounds_every_test(model):
    p = model.p(1)
    tokens = [int(i) for i in np.argsort(-p)[20:60]]
    free = BasisTest(model.W, budget=None)
    spent = [verdict.work for verdict in free.step(p).verdicts(tokens, tau=0.1)]
    tight = free.with_budget(float(np.median(spent)))
    assert (free.budget, tight.budget) == (np.inf, np.median(spent))
    verdicts = tight.step(p).verdicts(tokens, tau=0.1)
    assert {verdict.decided for verdict in verdicts} == {True, False}
    assert tight.with_budget(None).step(p).verdicts(tokens, tau=0.1)[0].decided
    assert tight.with_budget(tight.budget) is tight
    with pytest.raises(ValueError, match="None is no limit"):
        BasisTest(model.W, budget=0)


def test_it_says_what_it_is(model):
    test = BasisTest(model.W, 7)
    assert repr(test) == "BasisTest(vocabulary=6000, rank=7)"
    assert (test.m, test.weight.shape) == (8, (6000, 7))
    assert BasisTest(model.W).weight is model.W


@pytest.fixture
def step(model):
    return BasisTest(model.W).step(model.p(0))


def test_a_token_is_tested_once(step):
    i = int(step.distribution.order_N[5])
    assert step.accepts(i, tau=0.1) is step.accepts(i, tau=0.1)
    assert step.accepts(i, tau=0.1) is not step.accepts(i, tau=0.2)


def test_several_tokens_at_once_are_several_tokens(step, model):
    tokens = [int(i) for i in step.distribution.order_N[:200:7]]
    together = step.verdicts([*tokens, tokens[0]], tau=0.1)
    fresh = BasisTest(model.W).step(model.p(0))
    assert [bool(v) for v in together[:-1]] == [bool(fresh.accepts(i, tau=0.1)) for i in tokens]
    assert together[-1] is together[0]


def test_the_mask_is_the_verdicts(step):
    tested = step.distribution.order_N[:50]
    mask = step.mask(0.1, top=50)
    assert mask.shape == step.distribution.p.shape
    assert mask[tested].tolist() == [bool(v) for v in step.verdicts(map(int, tested), tau=0.1)]
    assert mask.sum() == mask[tested].sum() > 0


@pytest.mark.parametrize("i", [-1, 6000])
def test_a_token_outside_the_vocabulary_is_refused(step, i):
    with pytest.raises(ValueError, match="token is"):
        step.accepts(i, tau=0.1)


def test_a_token_of_probability_zero_is_refused():
    step = BasisTest(np.random.default_rng(0).standard_normal((4, 2))).step([0.5, 0.5, 0.0, 0.0])
    with pytest.raises(ValueError, match="probability zero"):
        step.accepts(2, tau=0.1)
    assert not step.mask(0.1)[2:].any()


def test_top_is_checked(step):
    with pytest.raises(ValueError, match="None is all tokens"):
        step.mask(0.1, top=0)


def test_one_certificate_serves_many_slopes(step, model):
    i = int(step.distribution.order_N[3])
    verdict = step.accepts(i, tau=0.01)
    c = step.max_accepted_slope(verdict.certificate)
    assert c > 0.01 / 0.99
    test = BasisTest(model.W)
    assert test.verify(verdict.certificate, model.p(0), 0.999 * c / (1 + 0.999 * c))
    assert not test.verify(verdict.certificate, model.p(0), 1.001 * c / (1 + 1.001 * c))


def test_critical_tau_the_papers_example(example):
    # token 0 is rejected from c = p̂₀·(16/42)/p̂₂ on: what its neighbour at .29 has to gain
    test = BasisTest(example.W)
    low, high = test.critical_tau(example.p, 0)
    c = example.p[0] * 16 / 42 / example.p[2]
    assert low <= c / (1 + c) <= high * (1 + 1e-9)
    assert high <= low * 1.001
    # token 1 outweighs all: the one at .29 cannot lose p̂₁·(16/26), so it is accepted whatever the error
    assert test.critical_tau(example.p, 1)[1] == 1
    # for token 2 that at .55 has to gain p̂₂·(42/16)
    c = example.p[2] * 42 / 16 / example.p[0]
    assert test.critical_tau(example.p, 2) == pytest.approx((c / (1 + c), c / (1 + c)), rel=1e-3)


@pytest.mark.parametrize("rank", [12, 20, 40])
def test_both_ends_are_proven(model, rank):
    test, p = BasisTest(model.W), model.p(2)
    step = test.step(p)
    i = int(step.distribution.order_N[rank])
    low, high = step.critical_tau(i, rtol=1e-2)
    assert p[i] <= low < high <= low * 1.01
    assert step.accepts(i, tau=low * 0.999).accepted
    rejected = step.accepts(i, tau=min(high * 1.001, 0.9999))
    assert rejected.decided
    assert not rejected


def test_at_rank_zero_it_is_the_probability(model):
    test, p = BasisTest(model.W, 0), model.p(0)
    i = int(np.argmax(p))
    low, high = test.critical_tau(p, i)
    assert low == pytest.approx(p[i])
    assert high == pytest.approx(p[i], rel=1e-3)


def test_rtol_is_checked(model):
    with pytest.raises(ValueError, match="rtol"):
        BasisTest(model.W).critical_tau(model.p(0), 0, rtol=0.0)


def test_tau_of_a_slope():
    assert tau_from_slope(1.0) == 0.5
    assert tau_from_slope(float("inf")) == 1.0


@pytest.mark.parametrize(
    ("accepted", "certificate", "decided"),
    [
        (True, Acceptance(0, np.ones(2)), True),
        (False, Rejection(0, np.array([1]), np.ones(1)), True),
        (False, None, False),
    ],
)
def test_a_verdict_is_true_if_the_token_is_accepted(accepted, certificate, decided):
    verdict = Verdict(accepted, 0, 0.1, "least squares", certificate, 0.0, 1.0)
    assert bool(verdict) is accepted
    assert verdict.decided is decided
