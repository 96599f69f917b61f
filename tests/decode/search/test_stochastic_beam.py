import math
from collections import Counter

import pytest
import torch

from unspool.decode.hypothesis import Job
from unspool.decode.search.stochastic_beam import StochasticBeam
from unspool.interfaces import Step
from unspool.testing import TableModel, random_table

ROWS = [[0.0, 0.0, 1.0], [0.5, 0.3, 0.2], [0.1, 0.6, 0.3]]


def model():
    """0 ends: texts of at most three tokens."""
    return TableModel(lambda row: ROWS[row[-1]])


def texts(limit):
    """Every text after prompt (1) with its probability."""
    found, growing = {}, [((), 1.0)]
    while growing:
        tokens, p = growing.pop()
        for token, q in enumerate(ROWS[tokens[-1] if tokens else 1]):
            whole = (*tokens, token)
            if token == 0 or len(whole) == limit:
                found[whole] = p * q
            else:
                growing.append((whole, p * q))
    return found


def run(decoder, model, job):
    ended = [path for frontier in decoder(model, job) for path in frontier.ended]
    return sorted(ended, key=lambda path: (path.request, path.sample))


def many(trials, limit, n=1, eos=(0,)):
    return Job(((1,),) * trials, (limit,) * trials, tuple(range(trials)), n, frozenset(eos))


def close(share, exact, trials):
    return abs(share - exact) < 4 * math.sqrt(exact * (1 - exact) / trials)


@pytest.mark.parametrize("width", [2, 4])
def test_two_texts_are_two_draws_without_replacement(width):
    trials, p = 4000, texts(3)
    paths = run(StochasticBeam(width), model(), many(trials, 3, n=2))
    pairs = Counter((paths[at].tokens, paths[at + 1].tokens) for at in range(0, 2 * trials, 2))
    assert sum(p.values()) == pytest.approx(1.0)
    for first in p:
        for second in p:
            if first != second:
                exact = p[first] * p[second] / (1 - p[first])
                assert close(pairs[first, second] / trials, exact, trials)


def test_a_beam_for_every_text_finds_every_text():
    p = texts(3)
    paths = run(StochasticBeam(len(p) + 5), model(), many(1, 3, n=len(p) + 5))
    assert {path.tokens for path in paths} == set(p)
    for path in paths:
        assert sum(path.logps) == pytest.approx(math.log(p[path.tokens]), abs=1e-5)


def test_texts_come_in_the_order_of_their_perturbed_log_probabilities():
    paths = run(StochasticBeam(4), model(), many(50, 3, n=4))
    for at in range(0, 200, 4):
        totals = [path.total for path in paths[at : at + 4]]
        assert totals == sorted(totals, reverse=True)


def test_the_perturbed_log_probability_of_the_first_is_a_standard_gumbel():
    trials = 4000
    totals = torch.tensor([path.total for path in run(StochasticBeam(2), model(), many(trials, 3))])
    assert abs(totals.mean().item() - 0.5772) < 4 * 1.2825 / math.sqrt(trials)
    below = (totals < 1.0).double().mean().item()
    assert close(below, math.exp(-math.exp(-1.0)), trials)


def test_a_request_is_independent_of_its_batch_mates():
    decoder, table = StochasticBeam(3), random_table(6, 3)
    together = run(decoder, table, Job(((1,), (2, 3)), (6, 3), (7, 8), 3, frozenset({0})))
    for request, (prompt, limit, seed) in enumerate([((1,), 6, 7), ((2, 3), 3, 8)]):
        alone = run(decoder, table, Job((prompt,), (limit,), (seed,), 3, frozenset({0})))
        mine = together[3 * request : 3 * request + 3]
        assert [(path.tokens, path.total) for path in mine] == [(path.tokens, path.total) for path in alone]


class Contrasting(TableModel):
    """Has a score of its own, which is no distribution."""

    def _predict(self, state):
        step, state = super()._predict(state)
        return Step(step.logp_NV, score_NV=step.logp_NV + 100.0), state


def test_a_models_own_score_does_not_count():
    job = many(5, 3, n=2)
    assert run(StochasticBeam(2), Contrasting(model().table), job) == run(StochasticBeam(2), model(), job)


def test_errors_come_before_the_model_is_called():
    with pytest.raises(ValueError, match="n=3"):
        StochasticBeam(2)(None, many(1, 3, n=3))
    with pytest.raises(TypeError, match="width"):
        StochasticBeam(2.5)


def test_what_repr_prints_makes_the_same_search_again():
    assert repr(StochasticBeam(4)) == "StochasticBeam(4)"
    assert eval("StochasticBeam(4)") == StochasticBeam(4)
    assert not StochasticBeam(4).streams
