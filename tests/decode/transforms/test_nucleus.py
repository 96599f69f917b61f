import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.stats import chisquare
from transformers.generation.logits_process import TopHLogitsWarper, TopPLogitsWarper, TypicalLogitsWarper

import unspool as us
from unspool.decode.transforms import MinK, TailFree, TopH, TopP, Typical
from unspool.decode.transforms.nucleus import descending, first
from unspool.testing import TableModel

TOP_P_P = torch.tensor([[0.05, 0.5, 0.15, 0.3]]).log()


def top_p_plain(p, logp_NV):
    """The definition: sort everything, keep a token while the mass from it on is more than 1 − p."""
    ranked_NV, token_NV = logp_NV.sort(dim=-1, descending=True, stable=True)
    from_here_NV = ranked_NV.flip(-1).softmax(dim=-1).cumsum(dim=-1).flip(-1)
    keep_NV = from_here_NV > 1 - p
    keep_NV[:, 0] = True
    return keep_NV.scatter(1, token_NV, keep_NV)


@pytest.mark.parametrize(
    ("p", "kept"),
    [(0.1, [1]), (0.49, [1]), (0.51, [1, 3]), (0.79, [1, 3]), (0.9, [1, 2, 3]), (0.96, [0, 1, 2, 3])],
)
def test_top_p_by_hand(p, kept):
    assert TopP(p).keeps(TOP_P_P)[0].nonzero()[:, 0].tolist() == kept


def test_a_mass_of_exactly_p_is_enough():
    assert TopP(0.5).keeps(torch.tensor([[0.5, 0.25, 0.25]]).log()).tolist() == [[True, False, False]]
    assert TopP(0.75).keeps(torch.tensor([[0.5, 0.25, 0.25]]).log()).tolist() == [[True, True, False]]


def test_of_tied_tokens_the_lower_ids_stay_as_many_as_needed():
    assert TopP(0.6).keeps(torch.zeros(1, 5)).tolist() == [[True, True, True, False, False]]
    wide = torch.zeros(1, 4000)
    wide[0, 7] = 5.0
    kept = TopP(0.5).keeps(wide)[0].nonzero()[:, 0].tolist()
    assert kept == list(range(len(kept)))
    # The mass is e⁵ + 3999 = 4147.4; half of it is e⁵ and 1,926 tokens of weight 1.
    assert len(kept) == 1927


def test_top_p_one_is_the_identity():
    scores = torch.tensor([[0.0, -1e4, -math.inf]]).log_softmax(dim=-1)
    assert TopP(1.0).keeps(scores).tolist() == [[True, True, False]]


@settings(deadline=None, max_examples=40)
@given(data=st.data(), p=st.floats(0.01, 1), q=st.floats(0.01, 1))
def test_a_larger_p_keeps_more_and_enough(any_scores, data, p, q):
    scores = data.draw(any_scores)
    fewer, more = TopP(min(p, q)).keeps(scores), TopP(max(p, q)).keeps(scores)
    assert (fewer <= more).all()
    mass = scores.double().softmax(dim=-1).masked_fill(~fewer, 0).sum(dim=-1)
    assert (mass >= min(p, q) - 1e-6).all()


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9, 0.99])
def test_top_p_keeps_the_set_of_the_definition(matrices, p):
    for name, scores in matrices.items():
        assert torch.equal(TopP(p).keeps(scores), top_p_plain(p, scores)), name


@pytest.mark.parametrize("p", [0.3, 0.7, 0.95])
def test_the_kept_probabilities_are_those_of_hugging_face(matrices, p):
    for name, scores in matrices.items():
        theirs = TopPLogitsWarper(p)(None, scores)
        ours = scores.masked_fill(~TopP(p).keeps(scores), -math.inf)
        assert torch.equal(ours.sort(dim=-1).values, theirs.sort(dim=-1).values), name
        # Which of the tokens tied at the boundary stay is left to an unstable sort there.
        last = theirs.masked_fill(theirs == -math.inf, math.inf).amin(dim=-1, keepdim=True)
        untied = (scores == last).sum(dim=-1) == (theirs == last).sum(dim=-1)
        assert torch.equal(ours[untied], theirs[untied]), name


@pytest.mark.parametrize("p", [0, -0.1, 1.1, math.nan])
def test_impossible_p_is_refused(p):
    with pytest.raises(ValueError, match=r"TopP\.p is .*0 < p ≤ 1.*Greedy"):
        TopP(p)


# H = 1.143 nats; |−log p − H| = 0.546, 0.243, 0.754, 2.363, 2.769: the second token is the most typical.
TYPICAL_P = torch.tensor([[0.55, 0.25, 0.15, 0.03, 0.02]]).log()


def test_typical_by_hand():
    for tau, kept in ((0.2, [1]), (0.26, [0, 1]), (0.79, [0, 1]), (0.9, [0, 1, 2]), (0.96, [0, 1, 2, 3])):
        assert Typical(tau).keeps(TYPICAL_P)[0].nonzero()[:, 0].tolist() == kept


def test_a_typical_mass_of_exactly_tau_is_enough():
    # H = 1.75 log 2; |−log p − H| = 0.75, 0.25, 1.25, 1.25 times log 2: the second token is the most typical.
    p = torch.tensor([[0.5, 0.25, 0.125, 0.125]]).log()
    assert Typical(0.25).keeps(p).tolist() == [[False, True, False, False]]
    assert Typical(0.75).keeps(p).tolist() == [[True, True, False, False]]


def test_the_most_probable_token_may_go():
    assert not Typical(0.2).keeps(TYPICAL_P)[0, 0]


def test_typical_one_is_the_identity():
    assert Typical(1.0).keeps(torch.tensor([[0.0, -1e4, -math.inf]])).tolist() == [[True, True, False]]


def test_all_tokens_as_far_as_the_last_one_stay():
    assert Typical(0.1).keeps(torch.zeros(1, 7)).all()


@settings(deadline=None, max_examples=30)
@given(data=st.data(), t=st.floats(0.01, 1), u=st.floats(0.01, 1))
def test_a_larger_tau_keeps_more_and_enough(any_scores, data, t, u):
    scores = data.draw(any_scores)
    fewer, more = Typical(min(t, u)).keeps(scores), Typical(max(t, u)).keeps(scores)
    assert (fewer <= more).all()
    mass = scores.double().softmax(dim=-1).masked_fill(~fewer, 0).sum(dim=-1)
    assert (mass >= min(t, u) - 1e-6).all()


@pytest.mark.parametrize("tau", [0.2, 0.5, 0.9, 0.95])
def test_the_kept_set_is_that_of_hugging_face(matrices, tau):
    for name, scores in matrices.items():
        theirs = TypicalLogitsWarper(tau)(None, scores) > -math.inf
        assert torch.equal(Typical(tau).keeps(scores), theirs), name


@pytest.mark.parametrize("tau", [0.9, 0.999, 0.999999])
@pytest.mark.parametrize("vocabulary", [300, 2048])
def test_the_last_tokens_of_a_large_mass_are_counted(tau, vocabulary):
    """As many as double precision counts: a sum in float32 lost up to a tenth of them at 0.999999."""
    scores = 4 * torch.randn(20, vocabulary, generator=torch.Generator().manual_seed(0))
    logp = scores.double().log_softmax(-1)
    entropy = -(logp * logp.exp()).sum(-1, keepdim=True)
    mass = logp.exp().gather(1, (-logp - entropy).abs().argsort(-1)).cumsum(-1)
    assert Typical(tau).keeps(scores).sum(-1).tolist() == ((mass < tau).sum(-1) + 1).tolist()


@pytest.mark.parametrize("tau", [0, -0.1, 1.1, math.nan])
def test_typical_impossible_tau_is_refused(tau):
    with pytest.raises(ValueError, match=r"Typical\.tau is .*0 < tau ≤ 1"):
        Typical(tau)


def entropies(row):
    """H of the k most probable tokens, renormalised, for every k."""
    p = np.sort(np.exp(np.float64(row)))[::-1]
    p = p[p > 0]
    for k in range(1, len(p) + 1):
        q = p[:k] / p[:k].sum()
        yield -(q * np.log(q)).sum()


def test_top_h_by_hand():
    # H = 1.1421; H(q₁) = 0, H(q₂) = H(⅝, ⅜) = 0.6616, H(q₃) = 0.9933.
    p = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    assert TopH(0.4).keeps(p).tolist() == [[True, False, False, False]]
    assert TopH(0.6).keeps(p).tolist() == [[True, True, False, False]]
    assert TopH(0.9).keeps(p).tolist() == [[True, True, True, False]]


def test_top_h_one_is_the_identity():
    assert TopH(1.0).keeps(torch.tensor([[0.0, -1e4, -math.inf]])).tolist() == [[True, True, False]]


def test_a_bound_that_is_met_exactly_is_met():
    # Uniform over 100: log 10 = ½ log 100, so that ten tokens stay, and of equals the lower ids.
    assert TopH(0.5).keeps(torch.zeros(1, 100))[0].nonzero()[:, 0].tolist() == list(range(10))
    assert TopH(0.5).keeps(torch.zeros(1, 10_000)).sum() == 100


@settings(deadline=None, max_examples=40)
@given(data=st.data(), a=st.floats(0.01, 0.99), b=st.floats(0.01, 1))
def test_the_kept_set_is_the_definition_and_a_larger_alpha_keeps_more(any_scores, data, a, b):
    scores = data.draw(any_scores)
    assert (TopH(min(a, b)).keeps(scores) <= TopH(max(a, b)).keeps(scores)).all()
    for row, count in zip(scores.tolist(), TopH(a).keeps(scores).sum(dim=-1).tolist(), strict=True):
        *_, whole = found = list(entropies(row))
        fitting = [k for k, entropy in enumerate(found, 1) if entropy <= a * whole]
        sure = min(abs(entropy - a * whole) for entropy in found) > 1e-6
        assert not sure or count == max([1, *fitting])


def test_top_h_large_vocabularies_keep_the_definition(matrices):
    for name in ("600 plain", "600 cut", "5000 ties", "5000 plain"):
        scores = matrices[name][:14]
        for alpha in (0.4, 0.8):
            kept = TopH(alpha).keeps(scores)
            p = scores.double().softmax(dim=-1)
            q = torch.where(kept, p, 0.0) / torch.where(kept, p, 0.0).sum(dim=-1, keepdim=True)
            entropy = -torch.xlogy(p, p).sum(dim=-1)
            alone = kept.sum(dim=-1) == 1
            assert (alone | (-torch.xlogy(q, q).sum(dim=-1) <= alpha * entropy + 1e-6)).all()


def test_hugging_face_compares_terms_that_are_not_renormalised():
    # h₂ = .3466 + .3612 = .7078 > .6 · 1.1421 = .6853, although H(q₂) = .6616 is within the bound.
    p = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    theirs = TopHLogitsWarper(0.6)(None, p) > -math.inf
    assert theirs.tolist() == [[True, False, False, False]]
    assert TopH(0.6).keeps(p).tolist() == [[True, True, False, False]]


@pytest.mark.parametrize("alpha", [0, -0.1, 1.1, math.nan])
def test_impossible_alpha_is_refused(alpha):
    with pytest.raises(ValueError, match=r"TopH\.alpha is .*0 < alpha ≤ 1"):
        TopH(alpha)


def tail_free_plain(z, row):
    """The definition, token by token."""
    ranked = sorted(range(len(row)), key=lambda token: (-row[token], token))
    p = np.exp(np.array([row[token] for token in ranked]))
    bend = [abs(p[r] - 2 * p[r + 1] + p[r + 2]) for r in range(len(p) - 2)]
    kept = {ranked[0]}
    total, upto = sum(bend), 0.0
    for r, d in enumerate(bend):
        upto += d
        if upto <= z * total:
            kept.add(ranked[r + 1])
    return kept


def test_tail_free_by_hand():
    # p = .5, .3, .1, .06, .04: steps .2, .2, .04, .02; bends 0, .16, .02; shares 0, .889, 1.
    p = torch.tensor([[0.06, 0.5, 0.3, 0.04, 0.1]]).log()
    assert TailFree(0.8).keeps(p).tolist() == [[False, True, True, False, False]]
    assert TailFree(0.95).keeps(p).tolist() == [[False, True, True, False, True]]


def test_one_and_rows_without_curvature_keep_everything():
    assert TailFree(1.0).keeps(torch.tensor([[0.6, 0.3, 0.1]]).log()).all()
    assert TailFree(0.5).keeps(torch.zeros(2, 6)).all()
    assert TailFree(0.5).keeps(torch.tensor([[0.7, 0.3]]).log()).all()
    assert TailFree(0.5).keeps(torch.zeros(1, 1)).all()


@settings(deadline=None, max_examples=40)
@given(data=st.data(), z=st.floats(0.01, 0.99), y=st.floats(0.01, 1))
def test_the_kept_set_is_the_definition_and_a_larger_z_keeps_more(any_scores, data, z, y):
    scores = data.draw(any_scores).double().log_softmax(dim=-1)
    kept = TailFree(z).keeps(scores)
    assert (TailFree(min(z, y)).keeps(scores) <= TailFree(max(z, y)).keeps(scores)).all()
    for row, mask in zip(scores.tolist(), kept.tolist(), strict=True):
        p = np.exp(np.sort(row)[::-1])
        bend = np.abs(np.diff(p, 2))
        shares = np.cumsum(bend) / bend.sum() if len(row) > 2 and bend.sum() > 0 else None
        if shares is None or np.abs(shares - z).min() < 1e-9:
            continue  # no curvature, or a boundary that rounding decides
        alive = {token for token, score in enumerate(row) if score > -math.inf}
        assert {token for token, stays in enumerate(mask) if stays} == tail_free_plain(z, row) & alive


@pytest.mark.parametrize("z", [0, -0.1, 1.1, math.nan])
def test_impossible_z_is_refused(z):
    with pytest.raises(ValueError, match=r"TailFree\.z is .*0 < z ≤ 1"):
        TailFree(z)


def ranks(row, tau):
    """How many ranks stay, by the definition, one step after the other."""
    found = sorted((x for x in row if x > -math.inf), reverse=True)
    spread = found[0] - found[-1]
    if spread == 0:
        return len(found)
    cliff, steepest = 1, -1.0
    for i in range(1, len(found)):
        decay = (found[i - 1] - found[i]) / (i * spread)
        if decay > steepest:
            cliff, steepest = i, decay
    return min(max(cliff, math.floor(tau / spread)), len(found))


def test_min_k_by_hand():
    # Steps 0.5, 6, 0.5, 2 over their ranks: 0.5, 3, 0.17, 0.5. The cliff is after the second.
    row = torch.tensor([[0.0, -0.5, -6.5, -7.0, -9.0]])
    assert MinK(0).keeps(row).tolist() == [[True, True, False, False, False]]
    # R = 9: τ = 27 keeps three at least, and τ = 26.9 two.
    assert MinK(27).keeps(row).sum() == 3
    assert MinK(26.9).keeps(row).sum() == 2


def test_an_early_step_outweighs_a_larger_one_below():
    row = torch.tensor([[0.0, -2.0, -2.5, -8.0]])  # 2, 0.25, 1.83
    assert MinK(0).keeps(row).tolist() == [[True, False, False, False]]


def test_a_uniform_row_and_a_single_token_stay():
    rows = torch.tensor([[-1.0, -1.0, -1.0], [-1.0, -1.0, -math.inf], [-math.inf, 0.0, -math.inf]])
    expected = [[True, True, True], [True, True, False], [False, True, False]]
    assert MinK().keeps(rows).tolist() == MinK(0).keeps(rows).tolist() == expected


@settings(deadline=None, max_examples=80)
@given(data=st.data(), tau=st.floats(0, 60))
def test_the_kept_set_is_the_definition(any_scores, data, tau):
    scores = data.draw(any_scores)
    kept = MinK(tau).keeps(scores)
    for row, mask in zip(scores.tolist(), kept, strict=True):
        assert int(mask.sum()) == ranks(row, tau)
        if not mask.all():
            assert torch.tensor(row)[mask].min() >= torch.tensor(row)[~mask].max()


def test_min_k_large_vocabularies_keep_the_definition(matrices):
    for name in ("600 plain", "600 cut", "5000 ties", "5000 plain", "50000 plain", "50000 cut"):
        scores = matrices[name][:14]
        for tau in (0.0, 3.0, 5000.0):
            counts = MinK(tau).keeps(scores).sum(dim=-1).tolist()
            assert counts == [ranks(row, tau) for row in scores.tolist()]


def test_min_k_finds_a_cliff_below_many_equal_logits():
    row = torch.zeros(1, 3000)
    row[0, 1000:] = -50.0  # the only step, at rank 1000
    assert MinK(0).keeps(row.log_softmax(dim=-1)).sum() == 1000


@settings(deadline=None, max_examples=40)
@given(data=st.data(), t=st.sampled_from([0.25, 0.5, 2.0, 8.0]))
def test_the_cliff_does_not_move_with_the_temperature(any_scores, data, t):
    scores = data.draw(any_scores).double()
    assert torch.equal(MinK(0).keeps(scores), MinK(0).keeps(scores / t))


def test_samples_follow_the_renormalised_distribution():
    p = [0.4, 0.35, 0.2, 0.03, 0.02]
    draws = us.generate(TableModel(lambda row: p), [0], us.Sample(MinK(0)), max_new_tokens=1, n=4000, seed=1)
    counts = torch.bincount(torch.tensor([out.tokens[0] for out in draws]), minlength=5)
    # Steps .134, .56, 1.897, .405 over ranks: .134, .28, .632, .101: three stay.
    assert counts[3:].tolist() == [0, 0]
    assert chisquare(counts[:3].numpy(), [4000 * x / 0.95 for x in p[:3]]).pvalue > 1e-3


@pytest.mark.parametrize("tau", [-1, math.nan, math.inf])
def test_min_k_impossible_tau_is_refused(tau):
    with pytest.raises(ValueError, match=r"MinK\.tau is .*0 ≤ tau"):
        MinK(tau)


def plain_first(key_NV, count_N):
    """The first count tokens by key, the lower id first among equals: by a stable sort."""
    token_NV = key_NV.sort(dim=-1, descending=True, stable=True).indices
    rank_NV = torch.empty_like(token_NV).scatter(
        1, token_NV, torch.arange(key_NV.shape[1]).expand_as(token_NV)
    )
    return rank_NV < count_N[:, None]


def test_first_by_hand():
    key = torch.tensor([[3.0, 1.0, 3.0, 2.0, 2.0]])
    for count, kept in ((1, [0]), (2, [0, 2]), (3, [0, 2, 3]), (4, [0, 2, 3, 4]), (5, [0, 1, 2, 3, 4])):
        assert first(key, descending(key), torch.tensor([count]))[0].nonzero()[:, 0].tolist() == kept


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), min_size=6, max_size=6), min_size=1, max_size=4), st.data())
def test_first_is_the_stable_sort_with_any_ties(rows, data):
    key = torch.tensor(rows, dtype=torch.float32)
    count = torch.tensor([data.draw(st.integers(1, 6)) for _ in rows])
    assert torch.equal(first(key, descending(key), count), plain_first(key, count))


def test_descending_sorts_every_row(matrices):
    for scores in matrices.values():
        assert torch.equal(descending(scores), scores.sort(dim=-1, descending=True).values)
