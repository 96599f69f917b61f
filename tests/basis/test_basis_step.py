import numpy as np
import pytest

from unspool.basis import BasisTest


@pytest.fixture
def step(model):
    return BasisTest(model.W).step(model.p(0))


def test_a_token_is_tested_once(step):
    i = int(step.distribution.order_N[5])
    assert step.accepts(i, tau=0.1) is step.accepts(i, tau=0.1)
    assert step.accepts(i, tau=0.1) is not step.accepts(i, tau=0.2)
    assert step.accepts(i, delta=-np.log1p(-0.1)).accepted == step.accepts(i, tau=0.1).accepted


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


def test_a_floor_leaves_improbable_tokens_out(step):
    floor = float(step.distribution.head_N[9])
    assert step.mask(0.1, floor=floor).tolist() == step.mask(0.1, top=10).tolist()
    assert step.mask(0.1, top=5, floor=floor).sum() <= 5


@pytest.mark.parametrize("i", [-1, 6000])
def test_a_token_outside_the_vocabulary_is_refused(step, i):
    with pytest.raises(ValueError, match="0 … 5999"):
        step.accepts(i, tau=0.1)


def test_a_token_of_probability_zero_is_refused():
    step = BasisTest(np.random.default_rng(0).standard_normal((4, 2))).step([0.5, 0.5, 0.0, 0.0])
    with pytest.raises(ValueError, match="probability zero"):
        step.accepts(2, tau=0.1)
    assert not step.mask(0.1)[2:].any()


def test_top_is_checked(step):
    with pytest.raises(ValueError, match="at least one token"):
        step.mask(0.1, top=0)


def test_one_certificate_serves_many_slopes(step, model):
    i = int(step.distribution.order_N[3])
    verdict = step.accepts(i, tau=0.01)
    c = step.accepted_up_to(verdict.certificate)
    assert c > 0.01 / 0.99
    test = BasisTest(model.W)
    assert test.check(verdict.certificate, model.p(0), 0.999 * c / (1 + 0.999 * c))
    assert not test.check(verdict.certificate, model.p(0), 1.001 * c / (1 + 1.001 * c))
