import math
from dataclasses import replace

import pytest
import torch

from unspool.decode.hypothesis import Job
from unspool.decode.search.beam import Beam, grow, run_beams, token_scores
from unspool.decode.search.beam_state import BeamOptions, BeamState, Tree
from unspool.interfaces import Abilities, Step
from unspool.testing import TableModel, random_table


class Watched(Abilities):
    """A table model that remembers every step: how many rows, what was selected."""

    def __init__(self, model):
        self.model, self.seen, self.selects = model, [], 0
        self.vocab_size, self.context, self.text = model.vocab_size, None, None

    def start(self, prompts):
        step, state = self.model.start(prompts)
        return step, self.State(self, state)

    def step(self, state, tokens_N):
        step, inner = self.model.step(state.inner, tokens_N)
        self.seen.append(list(inner.rows))
        return step, self.State(self, inner)

    class State:
        def __init__(self, owner, inner):
            self.owner, self.inner = owner, inner

        def select(self, rows_M):
            self.owner.selects += 1
            return Watched.State(self.owner, self.inner.select(rows_M))


def test_the_model_reads_exactly_the_live_hypotheses():
    model = Watched(random_table(5, seed=4))
    job = Job(((1,), (2, 3), (4, 4)), (6, 2, 4), (0, 0, 0), 1, frozenset({0}))
    frontiers = list(Beam(3)(model, job))
    for frontier, rows in zip(frontiers, model.seen, strict=False):
        assert [(*path.prompt, *path.tokens) for path in frontier.live] == rows
    assert frontiers[-1].live == ()
    assert len(model.seen) == len(frontiers) - 1


def test_a_finished_request_leaves_the_batch():
    model = Watched(random_table(5, seed=4))
    list(Beam(2)(model, Job(((1,), (2,), (3,)), (1, 3, 5), (0, 0, 0))))
    assert [len(rows) for rows in model.seen] == [4, 4, 2, 2]
    assert {row[0] for row in model.seen[-1]} == {3}


def test_rows_that_stay_where_they_are_are_not_moved():
    model = Watched(TableModel(lambda row: [0.9, 0.1]))
    list(Beam(1)(model, Job(((1,), (0,)), (5, 5), (0, 0))))
    assert model.selects == 0


def test_texts_come_when_their_request_has_ended():
    job = Job(((1,), (2,)), (2, 4), (0, 0), 2)
    ended = [[path.request for path in frontier.ended] for frontier in Beam(2)(random_table(4, 1), job)]
    assert ended == [[], [0, 0], [], [1, 1]]


def test_several_beams_of_a_request_start_from_the_same_row():
    job = Job(((1,), (2,)), (3, 3), (0, 0), 2)
    options = BeamOptions(2)
    requests = [[BeamState(options, job, request, Tree()) for _ in range(2)] for request in range(2)]
    twice = [
        path for frontier in run_beams(random_table(4, 1), job, requests, grow) for path in frontier.ended
    ]
    once = [path for frontier in Beam(2)(random_table(4, 1), job) for path in frontier.ended]
    assert [twice[0].tokens, twice[2].tokens] == [once[0].tokens, once[2].tokens]


def cut_first(scores_NV, step, history):
    return torch.cat([torch.full_like(scores_NV[:, :1], -math.inf), scores_NV[:, 1:]], dim=1)


def test_scores_are_log_p_as_the_transforms_reshape_it():
    step = Step(torch.tensor([[0.5, 0.3, 0.2]]).log())
    assert token_scores(step, [], ()) is step.logp_NV
    assert token_scores(step, [], (cut_first,)).exp()[0].tolist() == pytest.approx([0.0, 0.6, 0.4])


def test_a_models_own_score_takes_the_place_of_log_p_and_moves_with_it():
    step = Step(torch.tensor([[0.5, 0.3, 0.2]]).log(), score_NV=torch.tensor([[2.0, 1.0, -1.0]]))
    assert token_scores(step, [], ()) is step.score_NV
    moved = token_scores(step, [], (cut_first,))[0].tolist()
    assert moved[0] == -math.inf
    assert moved[1:] == pytest.approx([1.0 + math.log(2), -1.0 + math.log(2)])


def test_what_the_model_cuts_stays_cut_under_a_transform():
    step = Step(torch.tensor([[0.6, 0.4, 0.0]]).log(), score_NV=torch.tensor([[2.0, 1.0, -math.inf]]))
    found = token_scores(step, [], (lambda scores_NV, step, history: scores_NV / 2,))[0]
    assert found[2] == -math.inf
    assert found[:2].isfinite().all()


def test_alternatives_of_each_token_are_returned_on_request():
    model = TableModel(lambda row: [0.5, 0.3, 0.2, 0.0])
    job = Job(((1,), (2,)), (2, 2), (0, 0), 2, alternatives=5)
    for path in (path for frontier in Beam(2, cut_first)(model, job) for path in frontier.ended):
        assert len(path.ranked) == 2
        for ranked in path.ranked:
            assert [token for token, _ in ranked.model] == [0, 1, 2]
            assert [math.exp(logp) for _, logp in ranked.model] == pytest.approx([0.5, 0.3, 0.2])
            assert [token for token, _ in ranked.drawn] == [1, 2]
            assert [math.exp(score) for _, score in ranked.drawn] == pytest.approx([0.6, 0.4])
    assert all(
        not path.ranked for frontier in Beam(2)(model, Job(((1,),), (2,), (0,))) for path in frontier.live
    )


def ends_at_two(path):
    return replace(path, finish_reason="loop", notes={"loop": "found"}) if len(path.tokens) == 2 else path


def test_a_judge_may_end_a_hypothesis_and_what_it_noted_is_kept():
    job = Job(((1,),), (6,), (0,), 2, stop_condition=ends_at_two)
    paths = [path for frontier in Beam(2)(random_table(4, 1), job) for path in frontier.ended]
    assert [(path.finish_reason, len(path.tokens), path.notes["loop"]) for path in paths] == [
        ("loop", 2, "found")
    ] * 2
