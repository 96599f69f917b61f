import math

import pytest
import torch
from scipy.stats import chisquare

import unspool as us
from unspool.decode.combine import DExperts
from unspool.testing import TableModel, random_table


def fixed(*p):
    return TableModel(lambda row: p)


def p_of(model):
    return model.start([[0]])[0].logp_NV[0].exp().tolist()


BASE, EXPERT, ANTI = fixed(0.5, 0.3, 0.2), fixed(0.2, 0.6, 0.2), fixed(0.4, 0.3, 0.3)


def test_by_hand():
    # 0.5 · 0.5, 0.3 · 2, 0.2 · ⅔ = 0.25, 0.6, 0.13333, over their sum 0.98333.
    assert p_of(DExperts.proxy_tuning(BASE, EXPERT, ANTI)) == pytest.approx(
        [0.25424, 0.61017, 0.13559], abs=1e-5
    )
    # α = 2: 0.5 / 4, 0.3 · 4, 0.2 · 4/9.
    whole = 0.125 + 1.2 + 0.8 / 9
    expected = [0.125 / whole, 1.2 / whole, 0.8 / 9 / whole]
    assert p_of(DExperts(BASE, EXPERT, ANTI)) == pytest.approx(expected, abs=1e-5)


def test_nought_and_experts_that_agree_leave_the_base_alone():
    assert p_of(DExperts(BASE, EXPERT, ANTI, 0)) == pytest.approx([0.5, 0.3, 0.2])
    assert p_of(DExperts(BASE, EXPERT, EXPERT, 3.0)) == pytest.approx([0.5, 0.3, 0.2])


def test_what_the_base_rules_out_stays_ruled_out_and_all_is_a_number():
    base, sure = fixed(0.5, 0.5, 0.0), fixed(0.0, 0.0, 1.0)
    for model in (DExperts(base, sure, ANTI), DExperts(base, ANTI, sure), DExperts(base, sure, sure)):
        p = p_of(model)
        assert p[2] == 0
        assert all(math.isfinite(each) for each in p)
        assert sum(p) == pytest.approx(1)


def test_samples_follow_the_equation():
    model = DExperts.proxy_tuning(BASE, EXPERT, ANTI)
    outs = us.generate(model, [0], us.Sample(), max_new_tokens=1, n=3000, seed=1)
    counts = torch.bincount(torch.tensor([out.tokens[0] for out in outs]), minlength=3)
    expected = torch.tensor([0.25, 0.6, 0.4 / 3]).double()
    assert chisquare(counts.numpy(), (3000 * expected / expected.sum()).numpy()).pvalue > 1e-3


def test_every_search_runs_on_it_alone_and_in_a_batch():
    model = DExperts(random_table(9, 0), random_table(9, 1), random_table(9, 2), 0.5)
    prompts = [[1, 2, 3], [4], [5, 6]]
    for decoder in (us.Greedy(), us.Sample(), us.Beam(3), us.Speculative(random_table(9, 3), length=2)):
        together = us.generate(model, prompts, decoder, max_new_tokens=6, seed=3)
        alone = [us.generate(model, prompt, decoder, max_new_tokens=6, seed=3) for prompt in prompts]
        assert [out.tokens for out in together] == [out.tokens for out in alone]


def test_what_does_not_go_together_is_refused():
    with pytest.raises(ValueError, match=r"DExperts\.weight is -1"):
        DExperts(BASE, EXPERT, ANTI, -1)
    with pytest.raises(ValueError, match="one vocabulary"):
        DExperts(BASE, EXPERT, fixed(0.5, 0.5))
