import asyncio
import json

import pytest

from unspool.decode.hypothesis import Job
from unspool.decode.output import Piece
from unspool.serve.api_error import ApiError
from unspool.serve.guard import Metrics
from unspool.serve.requests import CompletionRequest
from unspool.serve.responses import COMPLETION
from unspool.serve.streaming import Begun, GrowingAnswer, respond

PIECES = [Piece("a", (0,), 0, 0, None, (-1.0,)), Piece("b", (1,), 0, 0, "eos", (-1.0,))]


class Work:
    """What `Running` is to a response: it has begun, tells pieces, and can be stopped."""

    def __init__(self, *told):
        self.told, self.stopped = told, 0

    async def begun(self):
        return Begun(Job(((5, 6),), (9,), (0,)), ())

    async def pieces(self):
        for each in self.told:
            await asyncio.sleep(0)
            if isinstance(each, Exception):
                raise each
            yield each

    def stop(self):
        self.stopped += 1


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
        answer = GrowingAnswer(COMPLETION, body, None, None)
        response = await respond(answer, work, request or Listening(), metrics or Metrics())
        if not body.stream:
            return json.loads(response.body)
        return [part async for part in response.body_iterator]

    return asyncio.run(main())


def test_all_of_it_in_one_object():
    work, metrics = Work(*PIECES), Metrics()
    whole = sent(work, metrics)
    assert whole["choices"][0]["text"] == "ab"
    assert whole["usage"] == {"prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4}
    assert work.stopped == 1
    assert "unspool_generated_tokens_total{} 2\n" in metrics.text({})
    assert "unspool_first_tokens_total{} 1\n" in metrics.text({})


def test_events_hold_the_same_text_and_end_in_done():
    events = sent(Work(*PIECES), stream=True, stream_options={"include_usage": True})
    assert all(event.startswith(b"data: ") and event.endswith(b"\n\n") for event in events)
    assert events[-1] == b"data: [DONE]\n\n"
    records = [json.loads(event[6:]) for event in events[:-1]]
    assert "".join(it["choices"][0]["text"] for it in records[:-1]) == "ab"
    assert records[-1]["usage"]["completion_tokens"] == 2


def test_an_error_on_the_way_is_the_last_event_or_the_answer():
    work = Work(PIECES[0], RuntimeError("secret"))
    *_, last = sent(work, stream=True)
    assert json.loads(last[6:])["error"]["code"] == "internal"
    assert b"secret" not in last
    assert work.stopped == 1
    with pytest.raises(ApiError, match="something went wrong here") as found:
        sent(Work(PIECES[0], RuntimeError("secret")))
    assert found.value.status == 500


def test_work_is_stopped_when_nobody_listens():
    work = Work(*PIECES)
    sent(work, request=Leaving())
    assert work.stopped == 2  # once by whoever saw the client go, once at the end
