import math
from dataclasses import fields, replace
from random import Random

import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.stats import chisquare

from unspool.decode import fast_sampling
from unspool.decode.fast_sampling import (
    KERNELS,
    MAX_BEST_TOKENS,
    best_tokens,
    can_compile,
    draw,
    draw_exactly,
    encode,
    is_faster,
    truncate_exactly,
)
from unspool.decode.hypothesis import Hypothesis
from unspool.decode.multinomial import Multinomial
from unspool.decode.picks import ArgMax
from unspool.decode.search import sampling
from unspool.decode.search.sampling import reshape
from unspool.decode.transforms import (
    TRANSFORMS,
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
    Truncation,
    Typical,
)
from unspool.engine import sampling as kernels
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
KERNEL_CHAINS = [chain for chain in CHAINS if all(type(rule) in KERNELS for rule in chain)]
KINDS = ["flat", "peaked", "coarse", "half cut"]


def scores(kind, rows, vocabulary=VOCABULARY, seed=3):
    """Normalised rows of every kind that a model may give."""
    rng = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, vocabulary, generator=rng)
    if kind == "peaked":
        logits = 3.5 * logits
    if kind == "coarse":  # as of a model in half precision: many ties
        logits = (8 * logits).round() / 4
    if kind == "alike":
        logits = torch.zeros_like(logits)
    if kind == "half cut" and vocabulary > 1:
        cut = torch.rand(rows, vocabulary, generator=rng) < 0.5
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

    return [nudge(rule) if type(rule) in KERNELS else rule for rule in chain]


def clear(logp_NV, chain, room=1e-5):
    """Rows that keep the same tokens when every threshold moves by more than single precision rounds."""
    kept_NV = plain(logp_NV, chain) > -math.inf
    clear_N = torch.ones(len(logp_NV), dtype=torch.bool)
    for factor in (1 - room, 1 + room):
        clear_N &= ((plain(logp_NV, nudged(chain, factor)) > -math.inf) == kept_NV).all(dim=-1)
    return clear_N


class FixedRandom(Random):
    def __init__(self, u):
        self.u = u

    def random(self):
        return self.u


# ── one rule, three definitions ──────────────────────────────────────────────────────────────────

SETTINGS = {
    "Epsilon": 0.01,
    "Eta": 0.02,
    "MinP": 0.1,
    "TopA": 0.2,
    "TopK": 7,
    "TopNSigma": 1.2,
    "TopP": 0.8123,
    "Typical": 0.7123,
}
"""Of every truncation with a kernel: a setting that cuts some tokens and not all."""
WITHOUT_KERNEL = {"Kappa", "MinK", "PLess", "TailFree", "TopH"}
"""Rare truncations: the transform itself runs."""


def test_every_truncation_has_a_kernel_or_is_listed_as_without():
    truncations = {name for name, kind in TRANSFORMS.items() if issubclass(kind, Truncation)}
    assert truncations == SETTINGS.keys() | WITHOUT_KERNEL
    assert {kind.__name__ for kind in KERNELS} == SETTINGS.keys() | {"Temperature"}
    codes = [encoder(kind())[0] for kind, encoder in KERNELS.items()]
    assert sorted(codes) == list(range(len(KERNELS)))


@pytest.mark.parametrize("kind", [*KINDS, "alike"])
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("vocabulary", [50, 1000])
def test_transform_and_kernel_keep_the_same_tokens(name, kind, vocabulary):
    rule = TRANSFORMS[name](SETTINGS[name])
    logp_NV = scores(kind, 4, vocabulary)
    kept_NV = rule.keeps(logp_NV.double().log_softmax(dim=-1))
    for logp_V, kept_V in zip(logp_NV, kept_NV, strict=True):
        exact_V = truncate_exactly(logp_V, [rule]).log_softmax(dim=0)
        kept_K = (exact_V > -math.inf).nonzero()[:, 0]
        assert kept_K.tolist() == kept_V.nonzero()[:, 0].tolist()
        # In the middle of every kept token's share the kernel must draw that token, with its probability.
        middle_K = (exact_V.exp().cumsum(dim=0) - exact_V.exp() / 2)[kept_K]
        tokens, logps = draw(logp_V.expand(len(middle_K), -1), [rule], middle_K)
        assert tokens.tolist() == kept_K.tolist()
        assert logps.tolist() == pytest.approx(exact_V[kept_K].tolist(), abs=2e-5)


def test_encoding_leaves_out_temperature_1_and_limits_the_coldest():
    codes, parameters = encode((Temperature(1.0), TopK(7), Temperature(1e-40)))
    assert codes.tolist() == [1, 0]
    assert parameters.tolist() == [7, 1e-30]


# ── chains of rules ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chain", CHAINS, ids=repr)
def test_kernels_draw_the_token_of_transforms_and_multinomial(chain, kind):
    logp_NV = scores(kind, 8)
    logp_NV = logp_NV[clear(logp_NV, chain)].repeat_interleave(5, dim=0)
    u = torch.rand(len(logp_NV), dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    step, rngs = Step(logp_NV), [FixedRandom(x) for x in u.tolist()]
    assert is_faster(logp_NV)
    tokens, logps = sampling.draw(step, history(len(u)), chain, Multinomial(), rngs)
    reshaped = reshape(step, history(len(u)), chain)
    slowly = Multinomial().draw(reshaped, step, rngs)
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
def test_frequencies_match_the_exact_distribution(chain):
    rows = 1000
    logp_V = scores("peaked", 5)[-1]
    paths = [Hypothesis(0, 0, (1, 2, 3), tokens=(4, 5))] * rows
    expected = reshape(Step(logp_V[None].double()), paths[:1], chain)[0].exp()
    once = Step(logp_V[None])
    p_V = reshape(once, paths[:1], chain).softmax(dim=-1)[0]
    rngs = [Random(seed) for seed in range(rows)]
    step = Step(logp_V.expand(rows, -1))
    short, _ = sampling.draw(step, paths, chain, Multinomial(), rngs)
    slow = Multinomial().draw(p_V.log().expand(rows, -1), step, rngs)
    for tokens in (short, slow):
        counts = tokens.bincount(minlength=VOCABULARY).double()
        assert counts[expected == 0].sum() == 0
        often = rows * expected >= 5
        seen = [*counts[often].tolist(), counts[~often].sum().item()]
        expected_counts = [*(rows * expected[often]).tolist(), (rows * expected[~often]).sum().item()]
        if expected_counts[-1] < 5:
            seen, expected_counts = (
                [*seen[:-2], sum(seen[-2:])],
                [*expected_counts[:-2], sum(expected_counts[-2:])],
            )
        if len(seen) > 1:
            assert chisquare(seen, expected_counts).pvalue > 1e-4


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


def draw_compiled(logp_NV, chain, u_N):
    drawn = kernels.draw(logp_NV.contiguous().numpy(), *encode(tuple(chain)), u_N.numpy())
    return drawn.token.tolist(), drawn.logp.tolist(), drawn.certain.tolist()


@settings(deadline=None, max_examples=150)
@given(
    chain=st.lists(ANY_RULE, max_size=4),
    kind=st.sampled_from([*KINDS, "alike"]),
    vocabulary=st.sampled_from([1, 2, 7, 16, 17, 60, 255, 257, 900, 1025, 3000, 5003]),
    seed=st.integers(0, 999),
    cold=st.sampled_from([1.0, 30.0]),
)
def test_certain_rows_have_the_token_of_exact_sampling(chain, kind, vocabulary, seed, cold):
    logp_NV = cold * scores(kind, 4, vocabulary, seed)
    chain = [rule for rule in chain if not isinstance(rule, TopK) or rule.k <= vocabulary]
    u_N = torch.rand(4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    tokens, logps, certain = draw_compiled(logp_NV, chain, u_N)
    for row in range(4):
        token, logp = draw_exactly(logp_NV[row], chain, float(u_N[row]))
        assert not certain[row] or tokens[row] == token
        assert not certain[row] or logps[row] == pytest.approx(logp, abs=2e-5)


@pytest.mark.parametrize("chain", [(), *KERNEL_CHAINS], ids=repr)
@pytest.mark.parametrize("kind", KINDS)
def test_few_rows_need_exact_sampling(chain, kind):
    logp_NV = scores(kind, 40)
    u_N = torch.rand(40, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    *_, certain = draw_compiled(logp_NV, chain, u_N)
    typical = any(isinstance(rule, Typical) for rule in chain)
    assert sum(certain) >= (20 if kind == "coarse" or typical else 36)


def test_compiled_code_decides_in_float64_what_float32_cannot():
    logp_NV = scores("flat", 1)
    upto = logp_NV.double().softmax(dim=-1).cumsum(dim=-1)[0]
    u_N = upto[torch.linspace(10, VOCABULARY - 10, 40).long()] + 1e-8
    tokens, _, certain = draw_compiled(logp_NV.expand(40, -1), (), u_N)
    assert all(certain)
    assert tokens == torch.searchsorted(upto, u_N, right=True).tolist()


@pytest.mark.parametrize("chain", [(), *KERNEL_CHAINS], ids=repr)
def test_tokens_at_the_borders_are_those_of_exact_sampling(chain):
    """u is 0, almost 1, at the cumulative sums or next to them, so that rounding would decide."""
    logp_NV = scores("peaked", 1)
    upto = plain(logp_NV, chain)[0].exp().cumsum(dim=-1)
    border = upto[torch.linspace(0, VOCABULARY - 1, 40).long()].clamp(max=1.0)
    u_N = torch.cat([torch.tensor([0.0, math.nextafter(1, 0)]), border, border - 1e-9, border + 1e-8]).clamp(
        0, math.nextafter(1, 0)
    )
    tokens, _ = draw(logp_NV.expand(len(u_N), -1), chain, u_N)
    assert tokens.tolist() == [draw_exactly(logp_NV[0], chain, float(u))[0] for u in u_N]


@pytest.mark.parametrize("chain", [(TopK(30),), (TopP(0.9),), (Temperature(0.8), Typical(0.9))], ids=repr)
def test_other_rows_of_the_batch_change_nothing(chain):
    logp_NV = torch.cat([scores("flat", 4), scores("peaked", 4)])
    u = torch.linspace(0.05, 0.95, 8, dtype=torch.float64)
    together, logps = draw(logp_NV, chain, u)
    for order in ([7, 3, 5, 1], [0], [6, 2, 4, 0, 1, 3, 5, 7]):
        tokens, scores_N = draw(logp_NV[order], chain, u[order])
        assert tokens.tolist() == together[order].tolist()
        assert scores_N.tolist() == pytest.approx(logps[order].tolist(), abs=1e-5)


def test_the_input_is_untouched():
    logp_NV = scores("peaked", 3)
    before = logp_NV.clone()
    for chain in CHAINS:
        sampling.draw(Step(logp_NV), history(3), chain, Multinomial(), [Random(0)] * 3)
    assert torch.equal(logp_NV, before)


def test_kernels_are_used_for_large_float32_vocabularies_on_a_cpu_with_numba(monkeypatch):
    large, small = scores("flat", 1), scores("flat", 1, 100)
    assert is_faster(large)
    assert not is_faster(small)
    assert not is_faster(large.double())
    assert not is_faster(large.to("meta"))
    monkeypatch.setattr(fast_sampling, "USE_KERNELS", False)
    assert not is_faster(large)


def test_without_numba_transforms_and_multinomial_draw(monkeypatch):
    logp_NV = scores("peaked", 6)
    compiled, _ = sampling.draw(
        Step(logp_NV), history(6), (TopP(0.9),), Multinomial(), [Random(n) for n in range(6)]
    )
    monkeypatch.setattr(fast_sampling, "USE_KERNELS", False)
    monkeypatch.setattr(fast_sampling, "draw", None)
    plain, _ = sampling.draw(
        Step(logp_NV), history(6), (TopP(0.9),), Multinomial(), [Random(n) for n in range(6)]
    )
    assert plain.tolist() == compiled.tolist()


def test_other_picks_use_the_plain_scores():
    logp_NV = scores("peaked", 2)
    tokens, _ = sampling.draw(Step(logp_NV), history(2), (TopP(0.9),), ArgMax(), [Random(0)] * 2)
    assert tokens.tolist() == logp_NV.argmax(dim=-1).tolist()


@pytest.mark.parametrize(("score", "match"), [(math.nan, "row 0.*NaN"), (-math.inf, "row 0.*−∞ only")])
def test_rows_that_cannot_be_drawn_from_are_refused(score, match):
    logp_NV = scores("flat", 2)
    logp_NV[0] = score
    with pytest.raises(ValueError, match=match):
        sampling.draw(Step(logp_NV), history(2), (TopP(0.9),), Multinomial(), [Random(0)] * 2)


# ── best tokens ──────────────────────────────────────────────────────────────────────────────────

SCORES = torch.tensor([[-3.0, -1.0, -1.0]])


def test_best_tokens_by_hand():
    values_NK, tokens_NK = best_tokens(SCORES, 2)
    assert (values_NK.tolist(), tokens_NK.tolist()) == ([[-1.0, -1.0]], [[1, 2]])


@pytest.mark.parametrize(
    "scores_NV", [SCORES.double(), SCORES.half(), SCORES.to("meta"), torch.tensor([[0.0, math.nan]])]
)
def test_torch_finds_best_tokens_of_other_dtypes_devices_and_nan(scores_NV):
    assert best_tokens(scores_NV, 2) is None


def test_torch_finds_many_best_tokens_of_a_row():
    assert best_tokens(torch.zeros(1, 2 * MAX_BEST_TOKENS), MAX_BEST_TOKENS + 1) is None
    assert best_tokens(torch.zeros(1, 2 * MAX_BEST_TOKENS), MAX_BEST_TOKENS) is not None


def test_torch_finds_best_tokens_without_numba(monkeypatch):
    monkeypatch.setattr(fast_sampling, "USE_KERNELS", False)
    assert not can_compile(SCORES)
    assert best_tokens(SCORES, 2) is None
