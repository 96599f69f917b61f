import math

import pytest
import torch

import unspool as us
from unspool.decode.search.sampling import reshape
from unspool.interfaces import Step
from unspool.serve.page.views import fates_of, rules_of

P = [0.5, 0.3, 0.15, 0.05]
STEP = Step(torch.tensor([P]).log())


def fates(search, tokens=(0, 1, 2, 3)):
    rules, pick = rules_of(search)
    return fates_of(pick, reshape(STEP, [None], rules), STEP, tokens)


def test_a_truncation_by_hand():
    found = fates(us.Sample(us.TopP(0.75)))
    assert found.fates == ("kept", "kept", "cut", "cut")
    assert found.probabilities == pytest.approx((0.625, 0.375, 0, 0))
    assert (found.kept, found.mass) == (2, pytest.approx(0.8))


def test_the_best_token_alone_is_kept_by_a_search_for_it():
    for search in (us.Greedy(), us.Sample(us.ArgMax())):
        found = fates(search, [1, 0])
        assert (found.fates, found.probabilities, found.kept) == (("cut", "kept"), (0, 1), 1)
        assert found.mass == pytest.approx(0.5)


@pytest.mark.parametrize("rule", [us.TopK(2), us.MinP(0.2), us.Typical(0.6), us.Temperature(2.0)])
def test_what_is_kept_are_the_survivors(rule):
    kept = [fate == "kept" for fate in fates(us.Sample(rule)).fates]
    assert kept == us.survivors(rule, STEP.logp_NV[0]).tolist()


def test_a_search_of_whole_texts_is_refused():
    with pytest.raises(ValueError, match=r"Beam\(3\) chooses whole texts.*Greedy or a Sample"):
        rules_of(us.Beam(3))


def basis_aware(pick, logp_1V, W_VD, rules=()):
    known = type("Known", (), {"output_matrix": W_VD})()
    bound = pick.bind(known, rules)
    step = Step(logp_1V)
    return bound, fates_of(bound, reshape(step, [None], rules), step, range(len(W_VD)))


def test_basis_aware_says_what_was_proved_below_the_threshold():
    torch.manual_seed(0)
    W_VD, p_V = torch.randn(40, 8), torch.softmax(2 * torch.randn(40), 0)
    bound, found = basis_aware(us.BasisAware(0.1, rank=8), p_V.log()[None], W_VD)
    step = bound.test.step(p_V.double())
    for token, fate in enumerate(found.fates):
        if p_V[token] >= 0.1:
            assert fate == "kept"
        else:
            assert fate == ("proved" if step.accepts(token, tau=0.1) else "cut")
    assert {"kept", "proved", "cut"} <= set(found.fates)
    kept = [fate != "cut" for fate in found.fates]
    assert found.mass == pytest.approx(float(p_V[kept].sum()), rel=1e-5)
    assert (found.kept, found.threshold) == (None, 0.1)


def test_what_a_rule_has_cut_needs_no_proof():
    torch.manual_seed(0)
    W_VD, p_V = torch.randn(40, 8), torch.softmax(2 * torch.randn(40), 0)
    _, found = basis_aware(us.BasisAware(0.1, rank=8), p_V.log()[None], W_VD, (us.TopK(3),))
    assert sum(fate != "cut" for fate in found.fates) <= 3


def test_tests_end_when_their_time_is_over(monkeypatch):
    monkeypatch.setattr("unspool.serve.page.views.TEST_SECONDS", -1.0)
    torch.manual_seed(0)
    p_V = torch.softmax(2 * torch.randn(40), 0)
    _, found = basis_aware(us.BasisAware(0.1, rank=8), p_V.log()[None], torch.randn(40, 8))
    assert set(found.fates) == {"kept", "undecided"}
    assert math.isclose(found.mass, float(p_V[p_V >= 0.1].sum()), rel_tol=1e-5)
