import math
from collections import Counter

import pytest

from unspool.decode.hypothesis import Job
from unspool.decode.ranking import FirstFull, Length
from unspool.decode.search.beam import Beam
from unspool.decode.search.stochastic_beam import BeamSample
from unspool.testing import TableModel, bigram, random_table

P = [0.5, 0.3, 0.2]


def run(decoder, model, job):
    ended = [path for frontier in decoder(model, job) for path in frontier.ended]
    return sorted(ended, key=lambda path: (path.request, path.sample))


def many(trials, limit, n=1, eos=()):
    return Job(((1,),) * trials, (limit,) * trials, tuple(range(trials)), n, frozenset(eos))


def close(share, exact, trials):
    return abs(share - exact) < 4 * math.sqrt(exact * (1 - exact) / trials)


def test_one_step_of_two_places_is_two_draws_without_replacement():
    trials = 4000
    paths = run(BeamSample(2), TableModel(lambda row: P), many(trials, limit=1, n=2))
    pairs = Counter(
        frozenset(path.tokens[0] for path in paths[at : at + 2]) for at in range(0, 2 * trials, 2)
    )
    for a, b in [(0, 1), (0, 2), (1, 2)]:
        exact = P[a] * P[b] / (1 - P[a]) + P[b] * P[a] / (1 - P[b])
        assert close(pairs[frozenset({a, b})] / trials, exact, trials)


def test_width_one_is_ancestral_sampling():
    trials = 4000
    rows = [[0.6, 0.4], [0.2, 0.8]]
    paths = run(BeamSample(1), bigram(rows), many(trials, limit=2))
    counts = Counter(path.tokens for path in paths)
    for a in (0, 1):
        for b in (0, 1):
            assert close(counts[a, b] / trials, rows[1][a] * rows[a][b], trials)


def test_the_best_of_what_was_drawn_comes_first():
    paths = run(BeamSample(3), random_table(6, 2), many(20, limit=4, n=3, eos={0}))
    for at in range(0, 60, 3):
        totals = [path.total for path in paths[at : at + 3]]
        assert totals == sorted(totals, reverse=True)
        assert totals == pytest.approx([sum(path.logps) for path in paths[at : at + 3]], abs=1e-9)
        assert len({path.tokens for path in paths[at : at + 3]}) == 3


def test_the_noise_is_the_requests_own_and_depends_on_the_seed():
    model, decoder = random_table(6, 3), BeamSample(3, length_penalty=Length(1.0), stop=FirstFull())
    together = run(decoder, model, Job(((1,), (2, 3), (1,)), (6, 4, 6), (7, 8, 9), 2, frozenset({0})))
    alone = run(decoder, model, Job(((1,),), (6,), (7,), 2, frozenset({0})))
    assert [(p.tokens, p.total) for p in together[:2]] == [(p.tokens, p.total) for p in alone]
    again = run(decoder, model, Job(((1,),), (6,), (9,), 2, frozenset({0})))
    assert [p.tokens for p in together[4:]] == [p.tokens for p in again]
    different = {tuple(p.tokens for p in run(decoder, model, Job(((1,),), (6,), (s,), 2))) for s in range(8)}
    assert len(different) > 1


def keep_best(scores_NV, step, history):
    return scores_NV.masked_fill(scores_NV < scores_NV.max(dim=-1, keepdim=True).values, -math.inf)


def test_where_a_transform_leaves_no_choice_nothing_is_random():
    (path,) = run(BeamSample(3, keep_best), random_table(6, 3), many(1, limit=5))
    (best,) = run(Beam(1), random_table(6, 3), many(1, limit=5))
    assert path.tokens == best.tokens
    assert path.scores == (0.0,) * 5


def test_errors_come_before_the_model_is_called():
    with pytest.raises(ValueError, match="n=3"):
        BeamSample(2)(None, many(1, limit=3, n=3))
    with pytest.raises(ValueError, match="width is 0"):
        BeamSample(0)


def test_what_repr_prints_makes_the_same_search_again():
    decoder = BeamSample(4, length_penalty=Length(0.5))
    assert repr(decoder) == "BeamSample(4, length_penalty=Length(alpha=0.5))"
    assert eval(repr(decoder), {"BeamSample": BeamSample, "Length": Length}) == decoder
    assert not decoder.streams
