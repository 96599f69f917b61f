import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise

import pytest
import torch

import unspool as us
from unspool.decode.prefill import Prefill
from unspool.models.trigram import TrigramConfig
from unspool.serve.scheduler import BatchCall, PerRequestBatch, RequestCancelled, RequestTimeout, Scheduler
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


def as_api_error(place):
    """One of many different requests: its prompt, search and options."""
    prompt = [1 + (7 * place + k) % 29 for k in range(1 + place % 5)]
    options = {"max_new_tokens": 4 + place % 9, "seed": place}
    return prompt, SEARCHES[place % len(SEARCHES)], options


def served(engine, place):
    prompt, search, options = as_api_error(place)
    with engine.open_request() as model:
        return us.generate(model, prompt, search, **options)


def alone(model, place):
    prompt, search, options = as_api_error(place)
    return us.generate(model, prompt, search, **options)


def test_every_request_is_answered_as_if_it_were_alone(scheduler_of, gate, batched_model, assert_same):
    engine = scheduler_of(batched_model)
    hold = gate(engine)
    with ThreadPoolExecutor(28) as pool:
        answers = [pool.submit(served, engine, place) for place in range(28)]
        hold.opened_when(28)
        found = [answer.result() for answer in answers]
    assert_same(found, [alone(batched_model, place) for place in range(28)])
    assert engine.counts["rows"] > 2 * engine.counts["steps"]
    assert engine.batch.rows == 0


def test_requests_that_draft_from_their_prompts_share_batches(scheduler_of, gate, batched_model, assert_same):
    engine = scheduler_of(batched_model)
    decoder = us.Speculative(us.PromptLookup(2, 1), us.Temperature(0.3), length=3)
    prompts = [[*range(1, 4 + place), *range(1, 3 + place)] for place in range(8)]
    options = {"max_new_tokens": 20, "seed": 5}

    def served(prompt):
        with engine.open_request() as model:
            return us.generate(model, prompt, decoder, **options)

    hold = gate(engine)
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(served, prompt) for prompt in prompts]
        hold.opened_when(8)
        found = [answer.result() for answer in answers]
    assert sum(output.stats["accepted"] for output in found) > 0
    assert_same(found, [us.generate(batched_model, prompt, decoder, **options) for prompt in prompts])


def test_what_prompts_have_in_common_is_read_once_and_says_the_same(gate, batched_model, assert_same):
    beginning = [1 + k % 29 for k in range(40)]
    with closing(Scheduler(batched_model, cache_bytes=2**20)) as engine:
        for search in (us.Sample(), us.Beam(3), us.Greedy()):
            hold = gate(engine)
            prompts = [[*beginning, 3 + k, 4] for k in range(6)]

            def served(prompt, search=search):
                with engine.open_request() as model:
                    return us.generate(model, prompt, search, max_new_tokens=8, seed=prompt[-2])

            with ThreadPoolExecutor(6) as pool:
                answers = [pool.submit(served, prompt) for prompt in prompts]
                hold.opened_when(6)
                found = [answer.result() for answer in answers]
            for prompt, output in zip(prompts, found, strict=True):
                alone = us.generate(batched_model, prompt, search, max_new_tokens=8, seed=prompt[-2])
                assert_same(output, alone)
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
def test_models_whose_states_cannot_be_joined_are_served_too(scheduler_of, model):
    model = model.eval()
    engine = scheduler_of(model)
    places = [place for place in range(21) if not isinstance(as_api_error(place)[1], us.ContrastiveSearch)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda place: served(engine, place), places))
    assert found == [alone(model, place) for place in places]
    assert engine.batch.rows == 0


def test_those_who_wait_are_read_in_one_step(scheduler_of, gate):
    engine = scheduler_of(random_table(31, seed=3))
    hold = gate(engine)
    with ThreadPoolExecutor(9) as pool:
        answers = [
            pool.submit(lambda k=k: us.generate(engine.open_request(), [k], us.Greedy(), max_new_tokens=1))
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
def test_an_error_of_one_request_touches_no_other(scheduler_of, gate, table, error):
    model = TableModel(table)
    engine = scheduler_of(model)

    def served(prompt):
        with engine.open_request() as shared:
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


def test_a_request_that_is_given_up_leaves_before_the_next_step(scheduler_of):
    engine = scheduler_of(random_table(7, seed=1))
    staying, leaving = engine.open_request(), engine.open_request()
    _, state = staying.start([[1], [2]])
    _, gone = leaving.start([[3], [4], [5]])
    assert engine.batch.rows == 5
    leaving.cancel(RequestCancelled())
    with pytest.raises(RequestCancelled):
        leaving.step(gone, torch.tensor([1, 1, 1]))
    leaving.close()
    staying.step(state, torch.tensor([1, 1]))
    assert engine.batch.rows == len(engine.batch._tokens) == 2


def test_a_request_that_waits_is_given_up_at_once(scheduler_of, gate):
    engine = scheduler_of(random_table(7, seed=1))
    hold, asker, failed = gate(engine), engine.open_request(), []

    def wait():
        try:
            asker.start([[1]])
        except RequestCancelled as error:
            failed.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    with engine._change:
        assert engine._change.wait_for(lambda: bool(engine._queue), 10)
    asker.cancel(RequestCancelled("client gone"))
    waiting.join(10)
    assert len(failed) == 1
    hold.opened_when(0)


def test_a_deadline_is_kept_even_while_the_engine_works(scheduler_of, gate):
    engine = scheduler_of(random_table(7, seed=1))
    hold = gate(engine)
    with engine.open_request(deadline=time.monotonic() + 0.01) as asker, pytest.raises(RequestTimeout):
        asker.start([[1]])
    hold.opened_when(0)
    with engine.open_request(deadline=time.monotonic() - 1) as late, pytest.raises(RequestTimeout):
        late.start([[1]])


def test_a_closed_engine_says_so(scheduler_of):
    engine = scheduler_of(random_table(7, seed=1))
    asker = engine.open_request()
    engine.close()
    with pytest.raises(RequestCancelled, match="closing"):
        asker.start([[1]])


def read(batch, *requests):
    prefills = [Prefill(prompts) for prompts in requests]
    batch.advance(prefills, 100)
    return [prefill.result for prefill in prefills]


def test_every_asker_has_a_state_of_its_own():
    model = TableModel(lambda row: [0.25, 0.75] if row[-1] else [0.5, 0.5], context=3)
    batch = PerRequestBatch(model)
    (first, a), bad, (_, b) = read(batch, [[0], [1]], [[9]], [[1]])
    assert first.logp_NV.exp().tolist() == [[0.5, 0.5], [0.25, 0.75]]
    assert isinstance(bad, ValueError)
    batch.select(a, [1, 1])
    step, ahead = batch.extend([(a, torch.tensor([[0], [1]])), (b, torch.tensor([[0, 1]]))])
    assert step.logp_NV.exp().tolist() == [[0.5, 0.5], [0.25, 0.75]]
    assert ahead.logp_NV.exp().tolist() == [[0.5, 0.5], [0.25, 0.75]]
    (error,) = batch.extend([(b, torch.tensor([[0]]))])
    assert "context" in str(error)
    batch.rewind(b, 1)
    assert b.state.rows == ((1, 0),)


def test_rows_that_nobody_holds_are_gone():
    batch = PerRequestBatch(TableModel(lambda row: [0.5, 0.5]))
    (_, a), (_, b) = read(batch, [[0]], [[0], [1]])
    assert batch.rows == 3
    a.is_open = False
    batch.sweep()
    assert a.state is None
    assert batch.rows == 2
    del b
    assert batch.rows == 0


class CountedModel(TableModel):
    """A table that notes the tokens that each call reads."""

    def extend_rows(self, state, rows_M, tokens_MT):
        CALLS.append(("step", tokens_MT.numel()))
        return super().extend_rows(state, rows_M, tokens_MT)

    def read_rows(self, state, rows_M, texts):
        CALLS.append(("read", sum(map(len, texts))))
        BEFORE_READ["do"]()
        return super().read_rows(state, rows_M, texts)


CALLS, BEFORE_READ = [], {"do": lambda: None}


@pytest.fixture
def counted():
    CALLS.clear()
    return CountedModel(random_table(9, seed=1).table)


def test_a_long_prompt_is_read_in_chunks_between_the_steps_of_others(scheduler_of, counted, monkeypatch):
    engine = scheduler_of(counted)
    running, reading = engine.open_request(), engine.open_request()
    _, state = running.start([[1]])

    def wait_for_the_other():
        with engine._change:
            assert engine._change.wait_for(lambda: len(engine._queue) == 2, 10)

    monkeypatch.setitem(BEFORE_READ, "do", wait_for_the_other)
    with ThreadPoolExecutor(1) as pool:
        prompt = pool.submit(reading.start, [[2, 3] * 700])
        while not prompt.done():
            _, state = running.step(state, torch.tensor([1]))
    kinds, sizes = zip(*CALLS, strict=True)
    reads = [size for kind, size in CALLS if kind == "read"]
    assert (sum(reads), max(reads)) == (1400, 128)
    assert all(pair != ("read", "read") for pair in pairwise(kinds))
    assert max(sizes) == 128
    assert torch.equal(prompt.result()[0].logp_NV, counted.start([[2, 3] * 700])[0].logp_NV)


def test_a_client_that_leaves_while_its_prompt_is_read_costs_nothing_more(scheduler_of, counted, monkeypatch):
    engine = scheduler_of(counted)
    leaving = engine.open_request()
    staying = engine.open_request()
    _, state = staying.start([[1]])
    monkeypatch.setitem(BEFORE_READ, "do", lambda: leaving.cancel(RequestCancelled()))
    with leaving, pytest.raises(RequestCancelled):
        leaving.start([[2, 3] * 700])
    staying.step(state, torch.tensor([1]))
    assert sum(size for kind, size in CALLS if kind == "read") == 128
    assert engine.batch.rows == len(engine.batch._tokens) == 1


def test_long_texts_are_scored_and_searched_in_chunks(scheduler_of, batched_model, assert_same, assert_close):
    model = batched_model
    text = [1 + k % 29 for k in range(300)]
    with scheduler_of(model).open_request() as shared:
        scores = [torch.tensor(us.score(it, text[:2], text[2:]).logps) for it in (shared, model)]
        assert_close(*scores)
        search = us.ContrastiveSearch(k=3, alpha=0.5)
        found = us.generate(shared, text, search, max_new_tokens=5, seed=1)
        assert_same(found, us.generate(model, text, search, max_new_tokens=5, seed=1))
        hidden_MD, step, state = shared.read_all([text])
        expected_MD, alone, _ = model.read_all([text])
        assert_close(hidden_MD, expected_MD)
        assert_close(step.logp_NV, alone.logp_NV)
        assert len(state.rows) == 1


def test_a_long_prompt_is_read_in_chunks_by_every_engine(
    scheduler_of, batched_model, assert_close, monkeypatch
):
    reads, forking = [], type(batched_model.forking)
    original = forking.read_rows

    def counted(self, state, rows_M, texts):
        reads.append(sum(map(len, texts)))
        return original(self, state, rows_M, texts)

    monkeypatch.setattr(forking, "read_rows", counted)
    engine, text = scheduler_of(batched_model), [1 + k % 29 for k in range(350)]
    running, reading = engine.open_request(), engine.open_request()
    _, state = running.start([[30]])
    with ThreadPoolExecutor(1) as pool:
        prompt = pool.submit(reading.start, [text])
        while not prompt.done():
            _, state = running.step(state, torch.tensor([1]))
    assert (sum(reads), max(reads)) == (350, 128)
    assert_close(prompt.result()[0].logp_NV, batched_model.start([text])[0].logp_NV)


def test_a_call_is_resolved_once_and_an_error_is_raised(scheduler_of):
    call = BatchCall("a", len)
    call.resolve(3)
    call.resolve(RuntimeError("late"))
    assert call.result.result(0) == 3
    with scheduler_of(random_table(5, seed=0)).open_request() as shared, pytest.raises(TypeError):
        shared.with_model(len)


def test_it_says_what_the_model_says(scheduler_of, compiled_model):
    shared = scheduler_of(compiled_model).open_request()
    for name in (
        "vocab_size",
        "context",
        "tokenizer",
        "is_encoder_decoder",
        "source_vocab_size",
        "source_tokenizer",
    ):
        assert getattr(shared, name) == getattr(compiled_model, name)
    assert shared.output_matrix is compiled_model.output_matrix
    assert shared.rewindable is shared.prompt_reading is shared
    assert shared.layered is None


def test_it_reads_selects_extends_and_rewinds_as_the_model_does(scheduler_of, batched_model, assert_close):
    shared = scheduler_of(batched_model).open_request()
    found = []
    for model in (shared, batched_model):
        said, state = model.start([[1, 2], [3]])
        state = state.select(torch.tensor([1, 0, 1])).select(torch.tensor([2, 1]))
        step, state = model.extend(state, torch.tensor([[4, 5, 6], [7, 8, 9]]))
        last, state = model.step(model.rewind(state, 2), torch.tensor([1, 2]))
        found.append([said.logp_NV, step.logp_NV, last.logp_NV])
    for ours, theirs in zip(*found, strict=True):
        assert_close(ours, theirs)


def test_a_score_is_the_models(scheduler_of, batched_model, assert_close):
    with scheduler_of(batched_model).open_request() as shared:
        assert_close(*(torch.tensor(us.score(it, [1, 2], [3, 4, 5]).logps) for it in (shared, batched_model)))


def test_an_old_error_comes_back_where_it_was_stopped(scheduler_of):
    shared = scheduler_of(random_table(5, seed=0)).open_request()
    shared.cancel(RequestCancelled("gone"))
    with pytest.raises(RequestCancelled, match="gone"):
        shared.start([[1]])


def test_a_probe_needs_numbers(scheduler_of):
    scheduler_of(random_table(5, seed=0)).probe()
    with pytest.raises(RuntimeError, match="no finite"):
        scheduler_of(TableModel(lambda row: [float("nan")] * 2)).probe()


def test_it_knows_whether_the_model_has_failed(scheduler_of):
    broken = TableModel(lambda row: [math.nan] * 3 if row[-1] == 2 else [0.2, 0.3, 0.5])
    with scheduler_of(broken).open_request() as shared:
        assert not shared.has_failed
        _, state = shared.start([[1]])
        assert not shared.has_failed
        shared.step(state, torch.tensor([2]))
        assert shared.has_failed
