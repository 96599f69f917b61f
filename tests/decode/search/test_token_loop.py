import math

import pytest
import torch

from unspool.decode.hypothesis import Hypothesis, Job
from unspool.decode.multinomial import Multinomial
from unspool.decode.picks import ArgMax
from unspool.decode.search.sampling import decode_rows, draw
from unspool.decode.transforms import TopK
from unspool.interfaces import Step
from unspool.testing import TableModel, TableState


class Die:
    """Rolls what it is told."""

    def __init__(self, *rolls):
        self.rolls = list(rolls)

    def random(self):
        return self.rolls.pop(0)


STEP = Step(torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.15, 0.75]]).log())
PATHS = [Hypothesis(0, 0, (0,)), Hypothesis(1, 0, (0,))]


def test_by_hand():
    # 0.55 falls into 0.5 … 0.8 of the first row; of the second the two best are 1/6 and 5/6.
    tokens_N, scores_N = draw(STEP, PATHS, (), Multinomial(), [Die(0.55), Die(0.05)])
    assert tokens_N.tolist() == [1, 0]
    assert scores_N.tolist() == pytest.approx([math.log(0.3), math.log(0.1)])
    tokens_N, scores_N = draw(STEP, PATHS, (TopK(2),), ArgMax(), [Die(), Die()])
    assert tokens_N.tolist() == [0, 2]
    assert scores_N.tolist() == pytest.approx([math.log(5 / 8), math.log(5 / 6)])


def test_rows_leave_as_they_end_and_every_prompt_is_read_once_in_a_batch():
    seen = []

    class Noted(TableModel):
        def start(self, prompts):
            seen.append(len(prompts))
            return super().start(prompts)

        def step(self, state, tokens_N):
            seen.append(len(tokens_N))
            return super().step(state, tokens_N)

    model = Noted(lambda row: [0.0, 1.0] if len(row) < 4 else [1.0, 0.0])
    job = Job(((1,), (1, 1)), (9, 9), (0, 0), n=2, eos=frozenset({0}))
    ended = [path for frontier in decode_rows(model, job, (), ArgMax()) for path in frontier.ended]
    assert sorted((path.request, path.sample, path.tokens) for path in ended) == [
        (0, 0, (1, 1, 1, 0)),
        (0, 1, (1, 1, 1, 0)),
        (1, 0, (1, 1, 0)),
        (1, 1, (1, 1, 0)),
    ]
    assert seen == [2, 4, 4, 2]


def test_many_samples_of_one_prompt_share_its_first_step_and_no_state_is_copied_for_those_that_end():
    seen = []

    class NotedState(TableState):
        def select(self, rows_M):
            seen.append(rows_M.tolist())
            return NotedState(super().select(rows_M).rows)

    class Noted(TableModel):
        def start(self, prompts):
            seen.append("start")
            step, state = super().start(prompts)
            return step, NotedState(state.rows)

    half = Noted(lambda row: [0.5, 0.5])
    job = Job(((1,),), (1,), (0,), n=7, rows=3)
    ended = [path for frontier in decode_rows(half, job, (), Multinomial()) for path in frontier.ended]
    assert [path.sample for path in ended] == list(range(7))
    assert seen == ["start"]

    # Where texts go on, those that do are copied, and the prompt is read again for the next batch alone.
    seen.clear()
    certain = Noted(lambda row: [0.0, 1.0])
    job = Job(((1,),), (2,), (0,), n=4, rows=3)
    ended = [path for frontier in decode_rows(certain, job, (), ArgMax()) for path in frontier.ended]
    assert [path.tokens for path in ended] == [(1, 1)] * 4
    assert seen == ["start", [0, 0, 0], "start"]


def test_batches_change_no_text():
    model = TableModel(lambda row: [0.1, 0.3, 0.6] if row[-1] else [0.5, 0.3, 0.2])
    told = {"prompts": ((1,), (2, 0)), "limits": (4, 3), "seeds": (5, 6), "n": 5, "eos": frozenset({0})}
    found = []
    for rows in (1, 2, 3, 4, 7, 100):
        frontiers = decode_rows(model, Job(**told, rows=rows), (), Multinomial())
        paths = [path for frontier in frontiers for path in frontier.ended]
        found.append({(path.request, path.sample): path.tokens for path in paths})
    assert len(found[0]) == 10
    assert all(each == found[0] for each in found)
