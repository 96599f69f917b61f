import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
import torch

import unspool as us
from unspool.models.trigram import TrigramConfig
from unspool.serve.scheduler import Engine
from unspool.serve.shared_model import DeadlinePassed, GivenUp
from unspool.testing import TableModel, random_table

SEARCHES = [
    us.Greedy(),
    us.Sample(us.Temperature(0.9), us.TopP(0.95)),
    us.Beam(3),
    us.Sample(us.RepetitionPenalty(1.3), us.MinP(0.02)),
    us.ContrastiveSearch(k=3, alpha=0.5),
    us.MBR(4, us.Sample(), us.decode.TokenF1()),
    us.StochasticBeam(2),
]


def told(place):
    """One of many different requests: its prompt, search and options."""
    prompt = [1 + (7 * place + k) % 29 for k in range(1 + place % 5)]
    options = {"max_new_tokens": 4 + place % 9, "seed": place}
    return prompt, SEARCHES[place % len(SEARCHES)], options


def served(engine, place):
    prompt, search, options = told(place)
    with engine.open() as model:
        return us.generate(model, prompt, search, **options)


def alone(model, place):
    prompt, search, options = told(place)
    return us.generate(model, prompt, search, **options)


def test_every_request_is_answered_as_if_it_were_alone(engine_of, gate, compiled_model):
    engine = engine_of(compiled_model)
    hold = gate(engine)
    with ThreadPoolExecutor(28) as pool:
        answers = [pool.submit(served, engine, place) for place in range(28)]
        hold.opened_when(28)
        found = [answer.result() for answer in answers]
    assert found == [alone(compiled_model, place) for place in range(28)]  # log-probabilities to the bit
    assert engine.counts.rows > 2 * engine.counts.steps
    assert engine.batch.rows == 0


def test_what_prompts_have_in_common_is_read_once_and_says_the_same(gate, compiled_model):
    beginning = [1 + k % 29 for k in range(40)]
    with closing(Engine(compiled_model, kept_bytes=2**20)) as engine:
        for search in (us.Sample(), us.Beam(3), us.Greedy()):
            hold = gate(engine)
            prompts = [[*beginning, 3 + k, 4] for k in range(6)]

            def served(prompt, search=search):
                with engine.open() as model:
                    return us.generate(model, prompt, search, max_new_tokens=8, seed=prompt[-2])

            with ThreadPoolExecutor(6) as pool:
                answers = [pool.submit(served, prompt) for prompt in prompts]
                hold.opened_when(6)
                found = [answer.result() for answer in answers]
            for prompt, output in zip(prompts, found, strict=True):
                alone = us.generate(compiled_model, prompt, search, max_new_tokens=8, seed=prompt[-2])
                assert output == alone  # log-probabilities to the bit
        assert engine.batch.rows == 0
        engine.batch.sweep()
        assert 0 < engine.batch.cached_rows <= 18
        # 18 prompts of 42 tokens: the beginning is read once, and no later prompt is read but for its end.
        assert engine.batch.read_tokens <= 6 * 42 + 12 * 2
        assert engine.batch.read_tokens + engine.batch.shared_tokens == 18 * 42


@pytest.mark.parametrize(
    "model",
    [
        TrigramConfig(vocab_size=31, width=8, inner_width=8).build(),
        us.models.RNNConfig(vocab_size=31, width=8, layers=1).build(),
    ],
    ids=["trigram", "rnn"],
)
def test_models_whose_states_cannot_be_joined_are_served_too(engine_of, model):
    model = model.eval()
    engine = engine_of(model)
    places = [place for place in range(21) if not isinstance(told(place)[1], us.ContrastiveSearch)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda place: served(engine, place), places))
    assert found == [alone(model, place) for place in places]
    assert engine.batch.rows == 0


def test_those_who_wait_are_read_in_one_step(engine_of, gate):
    engine = engine_of(random_table(31, seed=3))
    hold = gate(engine)
    with ThreadPoolExecutor(9) as pool:
        answers = [
            pool.submit(lambda k=k: us.generate(engine.open(), [k], us.Greedy(), max_new_tokens=1))
            for k in range(9)
        ]
        hold.opened_when(9)
        [answer.result() for answer in answers]
    assert engine.batch.read_tokens == 9


def poisoned(row):
    if 5 in row:
        return [math.nan] * 6
    return [0.1, 0.2, 0.3, 0.2, 0.1, 0.1]


def broken(row):
    if 5 in row:
        raise RuntimeError("this row is broken")
    return poisoned(row)


@pytest.mark.parametrize(("table", "error"), [(poisoned, ValueError), (broken, RuntimeError)])
def test_an_error_of_one_request_touches_no_other(engine_of, gate, table, error):
    model = TableModel(table)
    engine = engine_of(model)

    def served(prompt):
        with engine.open() as shared:
            # The poison comes with the second token: in a step that all of them share.
            forced = us.Sample(us.LogitBias({5: 1e9})) if prompt == [4] else us.Sample(us.BadWords(((5,),)))
            return us.generate(shared, prompt, forced, max_new_tokens=6, seed=1)

    hold = gate(engine)
    with ThreadPoolExecutor(5) as pool:
        answers = [pool.submit(served, [prompt]) for prompt in range(5)]
        hold.opened_when(5)
        with pytest.raises(error):
            answers[4].result()
        found = [answer.result() for answer in answers[:4]]
    for prompt, output in enumerate(found):
        search = us.Sample(us.BadWords(((5,),)))
        assert output == us.generate(model, [prompt], search, max_new_tokens=6, seed=1)


def test_a_request_that_is_given_up_leaves_before_the_next_step(engine_of):
    engine = engine_of(random_table(7, seed=1))
    staying, leaving = engine.open(), engine.open()
    _, state = staying.start([[1], [2]])
    _, gone = leaving.start([[3], [4], [5]])
    assert engine.batch.rows == 5
    leaving.stop(GivenUp())
    with pytest.raises(GivenUp):
        leaving.step(gone, torch.tensor([1, 1, 1]))
    leaving.close()
    staying.step(state, torch.tensor([1, 1]))
    assert engine.batch.rows == len(engine.batch._texts.lengths_N) == 2


def test_a_request_that_waits_is_given_up_at_once(engine_of, gate):
    engine = engine_of(random_table(7, seed=1))
    hold, asker, failed = gate(engine), engine.open(), []

    def wait():
        try:
            asker.start([[1]])
        except GivenUp as error:
            failed.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    with engine._change:
        assert engine._change.wait_for(lambda: bool(engine._waiting), 10)
    asker.stop(GivenUp("client gone"))
    waiting.join(10)
    assert len(failed) == 1
    hold.opened_when(0)


def test_a_deadline_is_kept_even_while_the_engine_works(engine_of, gate):
    engine = engine_of(random_table(7, seed=1))
    hold = gate(engine)
    with engine.open(deadline=time.monotonic() + 0.01) as asker, pytest.raises(DeadlinePassed):
        asker.start([[1]])
    hold.opened_when(0)
    with engine.open(deadline=time.monotonic() - 1) as late, pytest.raises(DeadlinePassed):
        late.start([[1]])


def test_a_closed_engine_says_so(engine_of):
    engine = engine_of(random_table(7, seed=1))
    asker = engine.open()
    engine.close()
    with pytest.raises(GivenUp, match="closed"):
        asker.start([[1]])
