"""A server among bad clients, a bad model and bad luck: whoever is not at fault is served as if alone."""

import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import httpx2 as httpx
import openai
import pytest
import uvicorn

import unspool as us
from unspool.serve.requests import Limits
from unspool.serve.scheduler import Scheduler
from unspool.serve.server import Server, create_app
from unspool.serve.streaming import WorkerPool

PROMPT = "And God said unto Moses,"
WEB = httpx.Client(verify=False, timeout=60)
SEARCHES = ("Sample()", "Greedy()", "Beam(3)", "Sample(TopP(0.9))", "Sample(MinP(0.05))", "StochasticBeam(2)")


class Served:
    """A server on a free port, in a thread."""

    def __init__(self, model, limits=None, slots=32):
        self.model, self.engine = model, Scheduler(model, 2**24)
        server = Server({"bible": self.engine}, WorkerPool(slots, 64), limits or Limits())
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        # A machine that is busy must not make connections look idle.
        config = uvicorn.Config(create_app(server), log_level="critical", ws="none", timeout_keep_alive=600)
        self._uvicorn = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._uvicorn.run, args=([listener],), daemon=True)
        self._thread.start()
        self.client = openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0)

    def ask(self, **told):
        return self.client.completions.create(
            **{"model": "bible", "prompt": PROMPT, "max_tokens": 12, **told}
        )

    def post(self, body, path="/v1/completions"):
        return WEB.post(self.url + path, content=body, headers={"content-type": "application/json"})

    def close(self):
        self.client.close()
        self._uvicorn.should_exit = True
        self._thread.join(30)


@pytest.fixture(scope="module")
def bible():
    return us.load("bible")


@pytest.fixture(scope="module")
def served(bible):
    found = Served(bible)
    yield found
    found.close()


@pytest.fixture(scope="module", autouse=True)
def connections():
    yield
    WEB.close()


def one_of_many(served, k):
    told = {"prompt": f"{PROMPT} {k % 7}", "seed": k, "extra_body": {"decoder": SEARCHES[k % len(SEARCHES)]}}
    if k % 2:
        return served.ask(**told, logprobs=1).choices[0].model_dump()["text"]
    return "".join(chunk.choices[0].text for chunk in served.ask(**told, stream=True))


def test_thirty_two_at_once_are_told_what_each_is_told_alone(served):
    alone = [one_of_many(served, k) for k in range(32)]
    with ThreadPoolExecutor(32) as pool:
        together = list(pool.map(lambda k: one_of_many(served, k), range(32)))
    assert together == alone
    assert len(set(alone)) > 20


def test_a_client_that_leaves_mid_stream_frees_its_rows_within_a_step_or_two(served):
    with served.ask(stream=True, max_tokens=220, n=4, seed=1) as stream:
        next(iter(stream))
    left = served.engine.counts["steps"]
    with served.engine._change:
        assert served.engine._change.wait_for(lambda: not served.engine._requests, 20)
    # The event loop hears of it while steps of a millisecond go on; of 220 there must be most left.
    assert served.engine.counts["steps"] - left < 110
    assert served.engine.batch.rows == 0


class Poisoned:
    """A model that says NaN once a row has read a certain token, and is otherwise the model."""

    def __init__(self, model, token):
        self.inner, self.token = model, token

    def extend_rows(self, state, rows_M, tokens_MT):
        step, state = self.inner.extend_rows(state, rows_M, tokens_MT)
        logp_NV = step.logp_NV.clone()
        logp_NV[(tokens_MT == self.token).any(1).repeat_interleave(tokens_MT.shape[1])] = math.nan
        return replace(step, logp_NV=logp_NV), state

    def __getattr__(self, name):
        return getattr(self.inner, name)


def test_a_poisoned_request_is_told_alone(served, bible, monkeypatch):
    token = bible.tokenizer.encode(" the")[0]
    banned = {"logit_bias": {str(token): -100}, "temperature": 0}
    alone = [served.ask(**banned, prompt=f"{PROMPT} {k}").choices[0].text for k in range(8)]
    monkeypatch.setattr(served.engine.batch, "_joining", Poisoned(served.engine.batch._joining, token))
    with ThreadPoolExecutor(9) as pool:
        bad = pool.submit(served.ask, temperature=0, logit_bias={str(token): 100})
        found = list(
            pool.map(lambda k: served.ask(**banned, prompt=f"{PROMPT} {k}").choices[0].text, range(8))
        )
        with pytest.raises(openai.InternalServerError, match="NaN"):
            bad.result()
        with pytest.raises(
            openai.APIError, match="NaN"
        ):  # a stream has begun by then: it tells it as an event
            list(served.ask(temperature=0, logit_bias={str(token): 100}, stream=True))
    assert found == alone


def test_a_deadline_is_told_and_frees_its_rows(bible):
    served = Served(bible, Limits(seconds=0.02))
    try:
        with pytest.raises(openai.APIStatusError) as late:
            served.ask(max_tokens=230, n=64, seed=3)
        assert late.value.status_code == 504
        with served.engine._change:
            assert served.engine._change.wait_for(lambda: not served.engine._requests, 20)
        assert served.engine.batch.rows == 0
    finally:
        served.close()


def test_sigterm_while_streaming_lets_the_stream_end():
    command = [sys.executable, "-m", "unspool", "serve", "bible", "--port", "0"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        url = next(
            found[1] for line in process.stderr if (found := re.search(r"running on (http://\S+)", line))
        )
        body = {"model": "bible", "prompt": PROMPT, "max_tokens": 60, "stream": True, "temperature": 0}
        with WEB.stream("POST", f"{url}/v1/completions", json=body) as answer:
            lines = answer.iter_lines()
            first = next(lines)
            process.send_signal(signal.SIGTERM)
            rest = list(lines)
        assert first.startswith("data: {")
        assert rest[-1] == "data: [DONE]" or rest[-2] == "data: [DONE]"
        process.communicate(timeout=60)
        assert process.returncode in (0, -signal.SIGTERM)
        with pytest.raises(httpx.ConnectError):
            WEB.get(f"{url}/health")
    finally:
        process.kill()
        process.communicate()


def test_a_hundred_megabytes_are_not_read(served):
    with socket.create_connection(("127.0.0.1", served.port), 20) as client:
        head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        client.sendall(f"{head}Content-Length: 100000000\r\n\r\n".encode() + b'{"model"')
        assert client.recv(4096).startswith(b"HTTP/1.1 413")

    def pieces():  # nobody says how many there will be
        for _ in range(1000):
            yield b"x" * 100_000

    with suppress(httpx.NetworkError):  # cut off before all of it was sent
        assert WEB.post(f"{served.url}/v1/completions", content=pieces()).status_code == 413
    assert served.ask(temperature=0).choices


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"null",
        b"[]",
        b'"text"',
        b"1e999",
        b'{"model": NaN}',
        b'{"model": "bible", "prompt": "\\ud800"}',
        b'{"model": "bible", "prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"model": "bible", "prompt": "a", "logit_bias": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}",
        b'{"model": "bible", "prompt": "a", "max_tokens": 1' + b"0" * 5000 + b"}",
        b'{"model": "bible", "prompt": ""}',
        b'{"model": "bible", "prompt": []}',
        b'{"model": "bible", "prompt": [[]]}',
        b'{"model": "bible", "prompt": ["a", 1]}',
        b'{"model": "bible", "prompt": [-1]}',
        b'{"model": "bible", "prompt": [4000000]}',
        b'{"model": "bible", "prompt": "a", "stop": [""]}',
        b'{"model": "bible", "prompt": "a", "n": 1000000}',
        b'{"model": "bible", "prompt": "a", "top_k": 999999, "max_tokens": 2}',
        b'{"model": "bible", "prompt": "a", "decoder": "__import__(\'os\')"}',
        b'{"model": "bible", "prompt": "a", "best_of": 3, "n": 2, "stream": true}',
        json.dumps({"model": "bible", "prompt": ["x"] * 10_000}).encode(),
    ],
    ids=range(24),
)
def test_whatever_is_sent_is_answered_by_400_in_words(served, body):
    answer = served.post(body)
    assert answer.status_code == 400
    assert len(answer.json()["error"]["message"]) > 8
    assert len(answer.content) < 2000


FIELDS = (
    *("model", "prompt", "n", "stream", "stream_options", "stop", "seed", "temperature", "top_p"),
    *("frequency_penalty", "presence_penalty", "logit_bias", "response_format", "top_k", "min_p"),
    *("typical_p", "repetition_penalty", "num_beams", "decoder", "stop_token_ids", "stop_loops"),
    "stop_approximate_loops",
    *("max_tokens", "best_of", "echo", "logprobs", "suffix"),
)


@pytest.mark.parametrize("field", FIELDS)
def test_a_field_of_the_wrong_type_is_named(served, field):
    for wrong in ({"a": [1]}, [[None]], "\x00wrong", -(10**30), [{}]):
        body = {"model": "bible", "prompt": PROMPT, "max_tokens": 1, field: wrong}
        answer = served.post(json.dumps(body).encode())
        if isinstance(wrong, str) and field in ("prompt", "stop"):
            assert answer.status_code == 200
        elif isinstance(wrong, dict) and field in ("stream_options", "response_format"):
            assert answer.headers["warning"] == f'299 unspool "ignored: {field}.a"'
        else:
            assert answer.status_code in (400, 404)
            assert field in answer.json()["error"]["message"]


def test_a_chat_of_nothing_is_refused(served):
    for messages in (
        [],
        None,
        [{}],
        [{"role": "user"}],
        [{"role": "user", "content": None}],
        "hello",
        [["a"]],
    ):
        answer = served.post(
            json.dumps({"model": "bible", "messages": messages}).encode(), "/v1/chat/completions"
        )
        assert answer.status_code == 400
        assert "messages" in answer.json()["error"]["message"]


def test_headers_of_a_megabyte_are_refused(served):
    answer = b""
    with socket.create_connection(("127.0.0.1", served.port), 20) as client:
        try:
            client.sendall(
                b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"a" * 1_000_000 + b"\r\n\r\n"
            )
            answer = client.recv(4096)
        except ConnectionError:
            pass  # refused before all of it was sent
    assert not answer.startswith(b"HTTP/1.1 5")
    assert WEB.get(f"{served.url}/v1/models").status_code == 200


def test_a_reader_who_takes_his_time_holds_up_nobody(served):
    body = json.dumps(
        {"model": "bible", "prompt": PROMPT, "max_tokens": 200, "n": 16, "stream": True, "logprobs": 20}
    )
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", served.port), 20) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        slow.sendall((head + body).encode())
        assert slow.recv(10).startswith(b"HTTP/1.1 2")
        began = time.monotonic()
        for k in range(3):
            assert served.ask(seed=k).choices
        assert time.monotonic() - began < 30
    with served.engine._change:
        assert served.engine._change.wait_for(lambda: not served.engine._requests, 30)


def test_a_stop_string_may_begin_and_end_within_tokens(served, bible):
    text = us.generate(bible, PROMPT, us.Greedy(), max_new_tokens=40).text
    for begin in range(3, len(text) - 8, 7):
        stop = text[begin : begin + 5]
        told = {"temperature": 0, "max_tokens": 40, "stop": [stop, "→ß"]}
        whole = served.ask(**told).choices[0]
        assert whole.text == text[: text.index(stop)]
        assert whole.finish_reason == "stop"
        streamed = [chunk.choices[0] for chunk in served.ask(**told, stream=True)]
        assert "".join(each.text for each in streamed) == whole.text
        assert streamed[-1].finish_reason == "stop"


def test_what_is_streamed_has_the_log_probabilities_and_offsets_of_the_whole(served):
    for told in ({}, {"echo": True}, {"echo": True, "n": 2}, {"prompt": "Élie → dit", "echo": True}):
        told = {"seed": 2, "logprobs": 2, "max_tokens": 20, **told}
        whole = served.ask(**told)
        parts = {choice.index: [] for choice in whole.choices}
        for chunk in served.ask(**told, stream=True):
            parts[chunk.choices[0].index].append(chunk.choices[0])
        for choice in whole.choices:
            assert "".join(part.text for part in parts[choice.index]) == choice.text
            for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
                joined = [each for part in parts[choice.index] for each in getattr(part.logprobs, name)]
                assert joined == getattr(choice.logprobs, name)
            logprobs = choice.logprobs
            for token, offset in zip(logprobs.tokens, logprobs.text_offset, strict=True):
                if "\\x" not in token and not token.startswith("<"):
                    assert choice.text[offset:].startswith((token, token.lstrip() if offset == 0 else token))


def test_json_is_what_the_schema_says(served):
    schema = {
        "type": "object",
        "properties": {"name": {"enum": ["Moses", "Aaron"]}},
        "required": ["name"],
        "additionalProperties": False,
    }
    held = {"type": "json_schema", "json_schema": {"name": "who", "schema": schema}}
    for extra in ({"seed": 1}, {"temperature": 0}, {"num_beams": 2}):
        text = served.ask(max_tokens=60, extra_body={"response_format": held, **extra}).choices[0].text
        assert json.loads(text)["name"] in ("Moses", "Aaron")
    bad = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nothing"}}}
    with pytest.raises(openai.BadRequestError):
        served.ask(extra_body={"response_format": bad})


def test_sigterm_ends_a_stream_that_outlasts_the_drain_limit():
    command = [sys.executable, "-m", "unspool", "serve", "bible", "--port", "0", "--drain", "1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        url = next(
            found[1] for line in process.stderr if (found := re.search(r"running on (http://\S+)", line))
        )
        # Nobody reads the stream, so that it does not end by itself.
        body = {"model": "bible", "prompt": PROMPT, "max_tokens": 200, "n": 256, "ignore_eos": True}
        with WEB.stream("POST", f"{url}/v1/completions", json={**body, "stream": True, "logprobs": 20}):
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
            assert time.monotonic() - began < 40
    finally:
        process.kill()
        process.communicate()
