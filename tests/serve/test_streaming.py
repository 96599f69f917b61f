import asyncio
import gc
import json
import math
import threading
import time
from contextlib import suppress
from functools import partial
from weakref import ref

import pytest
import torch

import unspool as us
from unspool.decode.hypothesis import Job
from unspool.decode.output import Piece
from unspool.serve.api_error import ApiError
from unspool.serve.generation import generate, score_prompt
from unspool.serve.metrics import Metrics, RequestRecord
from unspool.serve.requests import CompletionRequest, Limits
from unspool.serve.response_builders import ChatBuilder, CompletionBuilder, StartedGeneration
from unspool.serve.scheduler import RequestCancelled, RequestTimeout
from unspool.serve.streaming import MAX_EVENTS, ModelTask, WorkerPool, respond
from unspool.testing import random_table
from unspool.tokenization.vocabulary import train_characters

OPTIONS = {"max_new_tokens": 5, "n": 2, "seed": 1, "stop": None}


def run_generate(model, prompt, decoder, limits, emit):
    generate(model, emit, prompts=prompt, decoder=decoder, options=OPTIONS, limits=limits)


def test_it_tells_that_it_has_begun_and_then_every_piece():
    model, told = random_table(9, seed=1), []
    run_generate(model, [3, 4], us.Sample(), Limits(), told.append)
    begun, *pieces = told
    assert isinstance(begun, StartedGeneration)
    assert begun.job.prompts == ((3, 4),)
    expected = us.generate(model, [3, 4], us.Sample(), n=2, max_new_tokens=5, seed=1)
    for sample, output in enumerate(expected):
        mine = [piece for piece in pieces if piece.sample == sample]
        assert tuple(token for piece in mine for token in piece.tokens) == output.tokens


def test_nothing_is_told_before_all_is_checked():
    model, told = random_table(9, seed=1), []
    with pytest.raises(ValueError, match="allows"):
        run_generate(model, [3], us.Beam(1000), Limits(), told.append)
    with pytest.raises(ValueError, match="allows 3"):
        run_generate(model, [3] * 4, us.Greedy(), Limits(prompt_tokens=3), told.append)
    assert told == []


def test_prompts_are_scored(compiled_model):
    ids = [1 + k % 29 for k in range(55)]
    piece = score_prompt(compiled_model, ids, 2)
    assert piece.logps[1:] == us.score(compiled_model, ids[:1], ids[1:]).logps
    assert math.isnan(piece.logps[0])
    assert [len(ranked.model) for ranked in piece.ranked] == [0, *[2] * 54]
    assert score_prompt(compiled_model, ids[:1], 2).tokens == (1,)


def test_a_source_is_not_scored():
    with pytest.raises(ValueError, match="needs a language model"):
        score_prompt(us.load("dates"), [5, 6], 0)


TEXT = train_characters(["abcd"])
A, B, C, D = TEXT.encode("abcd")
PIECES = (
    Piece("a", (A,), 0, 0, None, (-1.0,)),
    Piece("b", (B,), 0, 1, None, (-3.0,)),
    Piece("c", (C,), 0, 0, "eos", (-2.0,)),
    Piece("d", (D,), 0, 1, "length", (-3.0,)),
)


def builder_of(n=2, kind=CompletionBuilder, alternatives=None, echo=False, scored=()):
    builder = kind(CompletionRequest(model="m", prompt="ab", n=n), TEXT, alternatives, echo=echo)
    builder.start(StartedGeneration(Job(((A, B),), (9,), (0,)), scored))
    return builder


def test_the_response_is_its_pieces_in_order():
    builder = builder_of()
    for piece in PIECES:
        builder.add(piece)
    choices = builder.response()["choices"]
    assert [(it["index"], it["text"], it["finish_reason"]) for it in choices] == [
        (0, "ac", "stop"),
        (1, "bd", "length"),
    ]


def test_the_best_of_several_has_the_highest_mean():
    builder = builder_of(n=1)
    for piece in PIECES:
        builder.add(piece)
    assert [it["text"] for it in builder.response()["choices"]] == ["ac"]  # −1.5 a token against −3


def test_chunks_are_the_same_text_and_only_the_first_names_its_role():
    builder = builder_of(kind=ChatBuilder)
    chunks = [next(builder.chunks(piece))["choices"][0] for piece in PIECES]
    assert [(it["index"], it["delta"]["content"]) for it in chunks] == [
        (0, "a"),
        (1, "b"),
        (0, "c"),
        (1, "d"),
    ]
    assert ["role" in it["delta"] for it in chunks] == [True, True, False, False]


def test_an_echo_comes_first_and_moves_the_offsets():
    scored = Piece("ab", (A, B), 0, 0, None, (float("nan"), -1.0))
    builder = builder_of(n=1, alternatives=0, echo=True, scored=(scored,))
    (echo,) = builder.opening()
    assert echo["choices"][0]["logprobs"]["text_offset"] == [0, 1]
    assert echo["choices"][0]["text"] == "ab"
    assert next(builder.chunks(PIECES[0]))["choices"][0]["logprobs"]["text_offset"] == [2]
    assert next(builder.chunks(PIECES[2]))["choices"][0]["logprobs"]["text_offset"] == [3]
    whole = builder_of(n=1, alternatives=0, echo=True, scored=(scored,))
    whole.add(PIECES[0])
    (choice,) = whole.response()["choices"]
    assert choice["text"] == "aba"
    assert choice["logprobs"]["text_offset"] == [0, 1, 2]


def test_log_probabilities_are_told_only_where_asked_for():
    for alternatives, told in ((None, None), (0, [-1.0])):
        builder = builder_of(n=1, alternatives=alternatives)
        logprobs = next(builder.chunks(PIECES[0]))["choices"][0]["logprobs"]
        assert (logprobs and logprobs["token_logprobs"]) == told


RESPONSE_PIECES = [Piece("a", (0,), 0, 0, None, (-1.0,)), Piece("b", (1,), 0, 0, "eos", (-1.0,))]


class FakeTask:
    """A fake ModelTask."""

    def __init__(self, *told):
        self.told, self.cancelled = [StartedGeneration(Job(((5, 6),), (9,), (0,))), *told], 0

    def __aiter__(self):
        return self

    async def __anext__(self):
        await asyncio.sleep(0)
        if not self.told:
            raise StopAsyncIteration
        event = self.told.pop(0)
        if isinstance(event, Exception):
            raise event
        return event

    def cancel(self):
        self.cancelled += 1


class Listening:
    """A client that stays."""

    async def receive(self):
        await asyncio.Event().wait()


class Leaving:
    """A client that has gone."""

    async def receive(self):
        return {"type": "http.disconnect"}


def sent(work, metrics=None, request=None, **fields):
    body = CompletionRequest(model="m", prompt="x", **fields)

    async def main():
        answer = CompletionBuilder(body, None, None)
        record = RequestRecord(model="m", times={"queue": 0.0})
        response = await respond(answer, work, request or Listening(), metrics or Metrics(), record)
        if not body.stream:
            return json.loads(response.body)
        return [part async for part in response.body_iterator]

    return asyncio.run(main())


def test_all_of_it_in_one_object():
    work, metrics = FakeTask(*RESPONSE_PIECES), Metrics()
    whole = sent(work, metrics)
    assert whole["choices"][0]["text"] == "ab"
    assert whole["usage"] == {"prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4}
    assert 'unspool_generated_tokens_total{model="m"} 2\n' in metrics.text({})
    for name in ("time_to_first_token_seconds", "time_between_tokens_seconds", "queue_seconds"):
        assert f'unspool_{name}_count{{model="m"}} 1\n' in metrics.text({})


def test_events_hold_the_same_text_and_end_in_done():
    events = sent(FakeTask(*RESPONSE_PIECES), stream=True, stream_options={"include_usage": True})
    assert all(event.startswith(b"data: ") and event.endswith(b"\n\n") for event in events)
    assert events[-1] == b"data: [DONE]\n\n"
    records = [json.loads(event[6:]) for event in events[:-1]]
    assert "".join(it["choices"][0]["text"] for it in records[:-1]) == "ab"
    assert records[-1]["usage"]["completion_tokens"] == 2


def test_an_error_on_the_way_is_the_last_event_or_the_answer():
    work = FakeTask(RESPONSE_PIECES[0], RuntimeError("secret"))
    *_, last = sent(work, stream=True)
    assert json.loads(last[6:])["error"]["code"] == "internal"
    assert b"secret" not in last
    assert work.cancelled == 1
    with pytest.raises(ApiError, match="internal error") as found:
        sent(FakeTask(RESPONSE_PIECES[0], RuntimeError("secret")))
    assert found.value.status == 500


def test_work_is_stopped_when_nobody_listens():
    work = FakeTask(*RESPONSE_PIECES)
    sent(work, request=Leaving())
    assert work.cancelled == 1


RUNNING_OPTIONS = {"max_new_tokens": 5, "n": 1, "seed": 1, "stop": None}


def run(scheduler, prompt, limits, listen):
    async def main():
        options = {"decoder": us.Sample(), "options": RUNNING_OPTIONS, "limits": limits}
        work = partial(generate, prompts=prompt, **options)
        return await listen(ModelTask(scheduler, WorkerPool(1, 1), lambda: work, limits.seconds))

    return asyncio.run(main())


async def drain(task):
    return [event async for event in task]


def test_pieces_cross_over(scheduler_of):
    model = random_table(9, seed=1)
    _, *pieces = run(scheduler_of(model), [1], Limits(), drain)
    found = [token for piece in pieces for token in piece.tokens]
    assert tuple(found) == us.generate(model, [1], us.Sample(), max_new_tokens=5, seed=1).tokens


def test_errors_cross_over(scheduler_of):
    engine = scheduler_of(random_table(9, seed=1))
    with pytest.raises(ApiError, match="vocabulary") as refused:
        run(engine, [99], Limits(), anext)
    assert refused.value.status == 400
    with pytest.raises(RequestTimeout):
        run(engine, [1], Limits(seconds=0), drain)


def test_a_request_that_is_cancelled_in_the_queue_ends_at_once(scheduler_of):
    engine, pool = scheduler_of(random_table(9, seed=1)), WorkerPool(1, 1)
    free = threading.Event()

    async def main():
        pool.submit(lambda: free.wait(10))
        await asyncio.to_thread(wait_until, lambda: pool.running == 1)
        task = ModelTask(engine, pool, lambda: lambda model, emit: emit("never"), 600)
        task.cancel()
        with pytest.raises(RequestCancelled):
            await asyncio.wait_for(anext(task), 5)
        assert pool.waiting == 0

    try:
        asyncio.run(main())
    finally:
        free.set()


def test_a_request_pauses_while_its_client_reads_slowly(scheduler_of):
    engine, emitted = scheduler_of(random_table(9, seed=1)), []

    def work(model, emit):
        for number in range(1000):
            emit(number)
            emitted.append(number)

    async def main():
        task = ModelTask(engine, WorkerPool(1, 1), lambda: work, 600)
        await asyncio.to_thread(wait_until, lambda: len(emitted) == MAX_EVENTS and not engine._requests)
        assert [await anext(task) for _ in range(600)] == list(range(600))
        await asyncio.to_thread(wait_until, lambda: len(emitted) == 600 + MAX_EVENTS)
        task.cancel()
        await asyncio.to_thread(wait_until, lambda: not engine._requests)
        assert task._events.qsize() <= MAX_EVENTS + 1

    asyncio.run(main())
    assert len(emitted) == 600 + MAX_EVENTS


@pytest.mark.parametrize("client_leaves", [False, True])
def test_a_finished_request_is_freed_without_the_garbage_collector(scheduler_of, client_leaves):
    engine, pool, logps = scheduler_of(random_table(9, seed=1)), WorkerPool(1, 1), []

    def work(model, emit):
        step, state = model.start([[1]])
        while client_leaves or len(logps) < 3:
            step, state = model.step(state, torch.tensor([2]))
            logps.append(ref(step.logp_NV))
            emit("a token")

    async def main():
        task = ModelTask(engine, pool, lambda: work, 600)
        await anext(task)
        if client_leaves:
            task.cancel()
        with suppress(RequestCancelled):
            await drain(task)
        await asyncio.to_thread(wait_until, lambda: not pool.running)
        assert len(logps) > 0
        assert not any(logp() is not None for logp in logps)
        return ref(task)

    gc.disable()
    try:
        task = asyncio.run(main())
        wait_until(lambda: task() is None)
    finally:
        gc.enable()


def wait_until(condition):
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)
