import math
from dataclasses import fields, replace
from random import Random

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings, strategies as st
from scipy.stats import chisquare

from unspool.decode import multinomial
from unspool.decode.hypothesis import Hypothesis
from unspool.decode.multinomial import Multinomial
from unspool.decode.picks import ArgMax
from unspool.decode.search import sampling
from unspool.decode.search.sampling import reshape
from unspool.decode.shortlist import chain as chain_module, nuclei
from unspool.decode.shortlist.chain import RULES, draw, drawn, pays, shorten
from unspool.decode.shortlist.referee import decide
from unspool.decode.transforms import (
    Epsilon,
    Eta,
    MinP,
    RepetitionPenalty,
    TailFree,
    Temperature,
    TopA,
    TopK,
    TopNSigma,
    TopP,
    Typical,
)
from unspool.interfaces import Step

VOCABULARY = 4100
CHAINS = [
    (Temperature(0.7),),
    (TopK(30),),
    (TopP(0.9),),
    (TopP(0.3),),
    (MinP(0.05),),
    (Epsilon(1e-3),),
    (Eta(2e-3),),
    (Typical(0.9),),
    (Typical(0.2),),
    (TopNSigma(1.5),),
    (TopA(0.3),),
    (Temperature(0.8), TopP(0.9)),
    (Temperature(0.3), TopP(0.95)),
    (TopK(50), TopP(0.9)),
    (TopP(0.9), TopK(50)),
    (MinP(0.02), Temperature(1.5)),
    (Temperature(1.3), Typical(0.8), MinP(0.1)),
    (Typical(0.9), Temperature(0.7), TopK(20)),
    (TopP(0.95), Typical(0.5), MinP(0.1)),
    (Eta(1e-3), TopNSigma(2.0), Epsilon(1e-3)),
    (TopK(3000), TopP(0.8), TopA(0.1)),
    (TopP(0.9), Eta(0.3)),
    (TopP(0.9), Epsilon(3e-4)),
    (TailFree(0.9), TopP(0.9)),
    (TopP(0.97), TailFree(0.95), Temperature(0.9)),
    (RepetitionPenalty(1.5), Temperature(0.8), TopK(100), RepetitionPenalty(1.2), TopP(0.9)),
]
SHORT_CHAINS = [chain for chain in CHAINS if all(type(rule) in RULES for rule in chain)]
KINDS = ["flat", "peaked", "coarse", "half cut"]


def scores(kind, rows, vocabulary=VOCABULARY, seed=3):
    """Normalised rows of every kind that a model may give."""
    dice = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, vocabulary, generator=dice)
    if kind == "peaked":
        logits = 3.5 * logits
    if kind == "coarse":  # as of a model in half precision: many ties
        logits = (8 * logits).round() / 4
    if kind == "alike":
        logits = torch.zeros_like(logits)
    if kind == "half cut" and vocabulary > 1:
        cut = torch.rand(rows, vocabulary, generator=dice) < 0.5
        cut[:, vocabulary // 2] = False
        logits[cut] = -math.inf
    return logits.log_softmax(dim=-1)


def history(rows):
    return [Hypothesis(row, 0, (1, 2, 3), tokens=(row % 7, 5)) for row in range(rows)]


def plain(logp_NV, chain):
    """The definition, in double precision."""
    step = Step(logp_NV.double())
    return reshape(step, history(len(logp_NV)), chain)


def nudged(chain, factor):
    """The same rules with every threshold a little elsewhere."""

    def nudge(rule):
        floats = {f.name: getattr(rule, f.name) for f in fields(rule)}
        return replace(
            rule, **{n: min(x * factor, max(x, 1.0)) for n, x in floats.items() if isinstance(x, float)}
        )

    return [nudge(rule) if type(rule) in RULES else rule for rule in chain]


def clear(logp_NV, chain, room=1e-5):
    """Rows that keep the same tokens when every threshold moves by more than single precision rounds."""
    kept_NV = plain(logp_NV, chain) > -math.inf
    clear_N = torch.ones(len(logp_NV), dtype=torch.bool)
    for factor in (1 - room, 1 + room):
        clear_N &= ((plain(logp_NV, nudged(chain, factor)) > -math.inf) == kept_NV).all(dim=-1)
    return clear_N


@pytest.fixture(autouse=True, params=["compiled", "torch"])
def way(request, monkeypatch):
    """Every test of this file, either way."""
    monkeypatch.setattr(chain_module, "COMPILED", request.param == "compiled")
    return request.param


def drawn_in_short(logp_NV, chain, u_N):
    return draw(Step(logp_NV), history(len(logp_NV)), chain, u_N)


class Loaded(Random):
    def __init__(self, u):
        self.u = u

    def random(self):
        return self.u


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chain", SHORT_CHAINS, ids=repr)
def test_the_same_tokens_stay_with_the_same_probabilities(chain, kind):
    logp_NV = scores(kind, 8)
    clear_N = clear(logp_NV, chain)
    assert clear_N.sum() >= 2
    expected = plain(logp_NV, chain)[clear_N]
    found = shorten(logp_NV, chain).whole()[clear_N].double()
    assert ((found > -math.inf) == (expected > -math.inf)).all()
    torch.testing.assert_close(found, expected, atol=3e-5, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chain", CHAINS, ids=repr)
def test_the_same_dice_draw_the_same_token_either_way(chain, kind):
    logp_NV = scores(kind, 8)
    logp_NV = logp_NV[clear(logp_NV, chain)].repeat_interleave(5, dim=0)
    u = torch.rand(len(logp_NV), dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    step, dice = Step(logp_NV), [Loaded(x) for x in u.tolist()]
    assert pays(logp_NV)
    tokens, logps = sampling.draw(step, history(len(u)), chain, Multinomial(), dice)
    reshaped = reshape(step, history(len(u)), chain)
    slowly = Multinomial().draw(reshaped, step, dice)
    exact = plain(logp_NV, chain)
    assert logps.tolist() == pytest.approx(exact.gather(1, tokens[:, None])[:, 0].tolist(), abs=3e-5)
    upto = exact.exp().cumsum(dim=-1)
    for found in (tokens, slowly):
        here = found[:, None]
        after = upto.gather(1, here)[:, 0]
        before = after - exact.exp().gather(1, here)[:, 0]
        assert (before <= u + 1e-5).all()
        assert (after >= u - 1e-5).all()
    assert (tokens == slowly).double().mean() > 0.95


@pytest.mark.parametrize("chain", CHAINS, ids=repr)
def test_frequencies_match_the_exact_distribution_either_way(chain):
    rows = 1000
    logp_V = scores("peaked", 5)[-1]
    paths = [Hypothesis(0, 0, (1, 2, 3), tokens=(4, 5))] * rows
    expected = reshape(Step(logp_V[None].double()), paths[:1], chain)[0].exp()
    once = Step(logp_V[None])
    p_V = reshape(once, paths[:1], chain).softmax(dim=-1)[0]
    dice = [Random(seed) for seed in range(rows)]
    step = Step(logp_V.expand(rows, -1))
    short, _ = sampling.draw(step, paths, chain, Multinomial(), dice)
    slow = Multinomial().draw(p_V.log().expand(rows, -1), step, dice)
    for tokens in (short, slow):
        counts = tokens.bincount(minlength=VOCABULARY).double()
        assert counts[expected == 0].sum() == 0
        often = rows * expected >= 5
        seen = [*counts[often].tolist(), counts[~often].sum().item()]
        hoped = [*(rows * expected[often]).tolist(), (rows * expected[~often]).sum().item()]
        if hoped[-1] < 5:
            seen, hoped = [*seen[:-2], sum(seen[-2:])], [*hoped[:-2], sum(hoped[-2:])]
        if len(seen) > 1:
            assert chisquare(seen, hoped).pvalue > 1e-4


ANY_RULE = st.one_of(
    st.builds(Temperature, st.floats(0.2, 3)),
    st.builds(TopK, st.integers(1, 60)),
    st.builds(TopP, st.floats(0.05, 1)),
    st.builds(MinP, st.floats(0, 1)),
    st.builds(Epsilon, st.floats(0, 0.3)),
    st.builds(Eta, st.floats(0, 0.3)),
    st.builds(Typical, st.floats(0.05, 1)),
    st.builds(TopNSigma, st.floats(0.1, 4)),
    st.builds(TopA, st.floats(0, 1)),
)


WAYS = {"compiled": chain_module._compiled, "torch": chain_module._in_torch}


def quickly(way, logp_NV, chain, u_N):
    return [each.tolist() for each in WAYS[way](logp_NV, chain, u_N)]


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    chain=st.lists(ANY_RULE, max_size=4),
    kind=st.sampled_from([*KINDS, "alike"]),
    vocabulary=st.sampled_from([1, 2, 7, 16, 17, 60, 255, 257, 900, 1025, 3000, 5003]),
    seed=st.integers(0, 999),
    cold=st.sampled_from([1.0, 30.0]),
)
def test_where_a_way_is_sure_it_finds_what_the_referee_finds(way, chain, kind, vocabulary, seed, cold):
    logp_NV = cold * scores(kind, 4, vocabulary, seed)
    chain = [rule for rule in chain if not isinstance(rule, TopK) or rule.k <= vocabulary]
    u_N = torch.rand(4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    tokens, logps, sure = quickly(way, logp_NV, chain, u_N)
    for row in range(4):
        token, logp = decide(logp_NV[row].numpy(), chain, float(u_N[row]))
        assert not sure[row] or tokens[row] == token
        assert not sure[row] or logps[row] == pytest.approx(logp, abs=2e-5)


@pytest.mark.parametrize("chain", [(), *SHORT_CHAINS], ids=repr)
@pytest.mark.parametrize("kind", KINDS)
def test_few_rows_are_left_to_the_referee(way, chain, kind):
    logp_NV = scores(kind, 40)
    u_N = torch.rand(40, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    *_, sure = quickly(way, logp_NV, chain, u_N)
    typical = any(isinstance(rule, Typical) for rule in chain)
    assert sum(sure) >= (20 if kind == "coarse" or typical else 36)


@pytest.mark.parametrize("chain", [(), *SHORT_CHAINS], ids=repr)
def test_at_the_ends_of_the_scale_and_on_every_border_both_find_the_same(way, chain):
    """Where rounding would decide: u at the cumulative sums themselves, and a little to the side of them."""
    logp_NV = scores("peaked", 1)
    upto = plain(logp_NV, chain)[0].exp().cumsum(dim=-1)
    border = upto[torch.linspace(0, VOCABULARY - 1, 40).long()].clamp(max=1.0)
    u_N = torch.cat([torch.tensor([0.0, math.nextafter(1, 0)]), border, border - 1e-9, border + 1e-8]).clamp(
        0, math.nextafter(1, 0)
    )
    tokens, _ = drawn(logp_NV.expand(len(u_N), -1), chain, u_N)
    assert tokens.tolist() == [decide(logp_NV[0].numpy(), chain, float(u))[0] for u in u_N]


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    chain=st.lists(ANY_RULE, min_size=1, max_size=4),
    kind=st.sampled_from(KINDS),
    vocabulary=st.integers(60, 900),
    short=st.sampled_from([0, 40]),
)
def test_any_chain_keeps_what_the_definition_keeps(chain, kind, vocabulary, short):
    logp_NV = scores(kind, 3, vocabulary)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nuclei, "SHORT", short)
        found = shorten(logp_NV, chain).whole().double()
    clear_N = clear(logp_NV, chain)
    assume(bool(clear_N.any()))
    expected = plain(logp_NV, chain)[clear_N]
    assert ((found[clear_N] > -math.inf) == (expected > -math.inf)).all()
    # Temperatures multiply each other's rounding: a score of −700 has four digits behind its point.
    torch.testing.assert_close(found[clear_N], expected, atol=1e-4, rtol=4 * torch.finfo(torch.float32).eps)


@pytest.mark.parametrize("chain", [(TopK(30),), (TopP(0.9),), (Temperature(0.8), Typical(0.9))], ids=repr)
def test_batch_mates_change_nothing(chain, monkeypatch):
    monkeypatch.setattr(multinomial, "TOGETHER", 3 * VOCABULARY)
    logp_NV = torch.cat([scores("flat", 4), scores("peaked", 4)])
    u = torch.linspace(0.05, 0.95, 8, dtype=torch.float64)
    together, logps = drawn_in_short(logp_NV, chain, u)
    for order in ([7, 3, 5, 1], [0], [6, 2, 4, 0, 1, 3, 5, 7]):
        tokens, scores_N = drawn_in_short(logp_NV[order], chain, u[order])
        assert tokens.tolist() == together[order].tolist()
        assert scores_N.tolist() == pytest.approx(logps[order].tolist(), abs=1e-5)


def test_the_input_is_untouched():
    logp_NV = scores("peaked", 3)
    before = logp_NV.clone()
    for chain in CHAINS:
        drawn_in_short(logp_NV, chain, torch.rand(3, dtype=torch.float64))
    assert torch.equal(logp_NV, before)


def test_when_it_pays():
    large, small = scores("flat", 1), scores("flat", 1, 100)
    assert pays(large)
    assert not pays(small)
    assert not pays(large.double())
    assert not pays(large.to("meta"))


def test_other_picks_see_the_whole_vocabulary():
    logp_NV = scores("peaked", 2)
    tokens, _ = sampling.draw(Step(logp_NV), history(2), (TopP(0.9),), ArgMax(), [Random(0)] * 2)
    assert tokens.tolist() == logp_NV.argmax(dim=-1).tolist()


@pytest.mark.parametrize(("score", "match"), [(math.nan, "row 0.*NaN"), (-math.inf, "row 0.*no token left")])
def test_rows_that_cannot_be_drawn_from_are_refused(score, match):
    logp_NV = scores("flat", 2)
    logp_NV[0] = score
    with pytest.raises(ValueError, match=match):
        sampling.draw(Step(logp_NV), history(2), (TopP(0.9),), Multinomial(), [Random(0)] * 2)
