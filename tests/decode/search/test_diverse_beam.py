import math

import pytest
from hypothesis import given, settings, strategies as st

from unspool.decode.hypothesis import Job
from unspool.decode.ranking import GNMT, FirstFull, Length, Proved
from unspool.decode.search.beam import Beam, DiverseBeam
from unspool.testing import TableModel, random_table


def run(decoder, model, job):
    ended = [path for frontier in decoder(model, job) for path in frontier.ended]
    return sorted(ended, key=lambda path: (path.request, path.sample))


def one(prompt=(1,), limit=4, n=1, eos=()):
    return Job((tuple(prompt),), (limit,), (0,), n, frozenset(eos))


def summary(paths):
    return [(path.tokens, path.total, path.finish_reason) for path in paths]


def groups(best):
    """The scores that each group's tokens were given, read from the tree: (token, sum) in the order taken."""
    return [(node.token, node.score) for node in best.notes["tree"]]


def test_by_hand():
    # Log-probabilities −0.51, −1.20, −2.30: at a price of 1 the second group prefers the second token.
    model = TableModel(lambda row: [0.6, 0.3, 0.1])
    first, second = run(DiverseBeam(3, 3, 1.0), model, one(limit=1, n=3))
    assert (first.tokens, second.tokens) == ((0,), (1,))
    assert second.total == pytest.approx(math.log(0.3))
    # The third pays once for either, and 0.6 · e⁻¹ = 0.221 is more than 0.3 · e⁻¹ and 0.1.
    taken = groups(first)
    assert [token for token, _ in taken] == [0, 1, 0]
    assert taken[2][1] == pytest.approx(math.log(0.6) - 1.0)


def test_the_price_counts_every_hypothesis_that_took_the_token_and_stays_in_the_sum():
    model = TableModel(lambda row: [0.5, 0.3, 0.2])
    best, *_ = run(DiverseBeam(4, 2, 0.25), model, one(limit=2, n=4))
    a, b = math.log(0.5), math.log(0.3)
    # Step 1: the first group takes 0 and 1, so that the second pays for either and still prefers them to 2.
    # Step 2: the first group ends with 00 and 01; the second pays ¼ more for 0 and for 1, and ends with them.
    expected = [a, b, a - 0.25, b - 0.25, 2 * a, a + b, 2 * a - 0.5, a + b - 0.5]
    assert [token for token, _ in groups(best)] == [0, 1, 0, 1, 0, 1, 0, 1]
    assert [total for _, total in groups(best)] == pytest.approx(expected, abs=1e-6)


def test_a_high_price_keeps_groups_apart_at_every_step():
    model = random_table(8, 3)
    paths = run(DiverseBeam(4, 4, 100.0), model, one(limit=6, n=4))
    for tokens in zip(*(path.tokens for path in paths), strict=True):
        assert len(set(tokens)) == 4


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 4), st.sampled_from([Length(1.0), GNMT(0.6)]), st.floats(0, 2))
def test_one_group_is_beam_search(seed, width, length_penalty, penalty):
    model, job = random_table(6, seed), one(limit=5, n=width, eos={0})
    diverse = run(DiverseBeam(width, 1, penalty, length_penalty=length_penalty), model, job)
    plain = run(Beam(width, length_penalty=length_penalty), model, job)
    assert summary(diverse) == summary(plain)
    assert diverse[0].notes == plain[0].notes


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 3), st.floats(0, 2))
def test_the_first_group_is_undisturbed_by_the_others(seed, width, penalty):
    model, job = random_table(6, seed), one(limit=5, n=1, eos={0})
    plain = run(Beam(width), model, job)
    every = run(DiverseBeam(width * 3, 3, penalty), model, one(limit=5, n=width * 3, eos={0}))
    assert summary(plain)[0] in summary(every)


def test_without_a_price_all_groups_find_the_same_and_it_comes_once():
    paths = run(DiverseBeam(4, 2, 0.0), random_table(6, 1), one(limit=3, n=4))
    assert summary(paths) == summary(run(Beam(2), random_table(6, 1), one(limit=3, n=2)))


def test_as_many_texts_as_groups_are_the_best_of_each():
    model = random_table(8, 3)
    best = run(DiverseBeam(6, 3, 0.7), model, one(limit=5, n=3))
    alone = run(Beam(2), model, one(limit=5, n=2))
    assert alone[0].tokens in {path.tokens for path in best}
    # The second best of the first group scores above the others' best, and is not among the three.
    assert alone[1].total > best[2].total
    assert alone[1].tokens not in {path.tokens for path in best}


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.randoms())
def test_batch_mates_make_no_difference(seed, random):
    model, decoder = random_table(6, seed), DiverseBeam(4, 2, 0.5, stop=FirstFull())
    prompts = tuple(tuple(random.choices(range(6), k=random.randint(1, 3))) for _ in range(3))
    limits = tuple(random.randint(1, 6) for _ in prompts)
    together = run(decoder, model, Job(prompts, limits, (0,) * 3, 4, frozenset({0})))
    for request, (prompt, limit) in enumerate(zip(prompts, limits, strict=True)):
        mine = [path for path in together if path.request == request]
        assert summary(mine) == summary(run(decoder, model, one(prompt, limit, 4, {0})))


def test_the_tree_holds_all_groups():
    (best,) = run(DiverseBeam(4, 2, 0.5), random_table(6, 1), one(limit=3))
    roots = [node for node in best.notes["tree"] if node.parent == -1]
    assert len(roots) == 4


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((5, 2, 0.5), ValueError, "is not a multiple of groups=2"),
        ((4, 0, 0.5), ValueError, "groups is 0"),
        ((4, 2, -0.1), ValueError, "penalty is -0.1"),
        ((4, 2, math.nan), ValueError, "penalty is nan"),
        ((0, 1, 0.5), ValueError, "width is 0"),
        ((4, 2.0, 0.5), TypeError, "groups is 2.0"),
    ],
)
def test_errors_say_what_was_wrong(arguments, error, words):
    with pytest.raises(error, match=words):
        DiverseBeam(*arguments)


def test_more_texts_than_the_width_are_refused_at_once():
    with pytest.raises(ValueError, match="n=5"):
        DiverseBeam(4, 2, 0.5)(None, one(n=5))


def test_what_repr_prints_makes_the_same_search_again():
    decoder = DiverseBeam(6, groups=3, penalty=0.5, length_penalty=GNMT(0.6))
    assert repr(decoder) == "DiverseBeam(6, 3, 0.5, length_penalty=GNMT(alpha=0.6))"
    assert eval(repr(decoder), {"DiverseBeam": DiverseBeam, "GNMT": GNMT}) == decoder


@pytest.mark.parametrize("seed", range(60))
def test_stopping_by_proof_gives_what_running_to_the_limit_gives(seed):
    """A group that could stop goes on as long as later groups pay for what it chooses."""
    model, job = random_table(5, seed=seed, spread=3.0), one(limit=7, n=6, eos={0})
    early = run(DiverseBeam(6, 3, 0.5, stop=Proved()), model, job)
    late = run(DiverseBeam(6, 3, 0.5, stop=lambda standing: False), model, job)
    assert summary(early) == summary(late)
