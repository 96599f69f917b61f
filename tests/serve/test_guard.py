import asyncio
from contextlib import suppress

import pytest

from unspool.serve.api_error import ApiError
from unspool.serve.guard import Guard, Metrics, read_keys

KEY = "0123456789abcdef"


def asked(headers, body=b"", keys=(KEY,)):
    """The status that a client sees, or "let through"."""
    sent = []

    async def app(scope, receive, send):
        await receive()
        sent.append({"status": "let through"})

    async def receive():
        return {"type": "http.request", "body": body}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "headers": headers}
    asyncio.run(Guard(app, keys, body_bytes=10)(scope, receive, send))
    return sent[0]["status"]


def test_a_key_is_asked_for_where_there_are_keys():
    assert asked([(b"authorization", b"Bearer " + KEY.encode())]) == "let through"
    assert asked([(b"authorization", b"Bearer " + KEY.encode()[:-1])]) == 401
    assert asked([(b"authorization", b"Bearer ")]) == 401
    assert asked([]) == 401
    assert asked([], keys=()) == "let through"


def test_without_keys_only_this_machine_is_served_by_its_own_names():
    for name in (b"localhost", b"localhost:8000", b"127.0.0.1:8000", b"[::1]:8000", b"[::1]", b"LOCALHOST:1"):
        assert asked([(b"host", name)], keys=()) == "let through"
    for name in (b"evil.example", b"evil.example:8000", b"localhost.evil.example", b"127.0.0.1.evil:80", b""):
        assert asked([(b"host", name)], keys=()) == 421
    key = (b"authorization", b"Bearer " + KEY.encode())
    assert asked([(b"host", b"evil.example"), key]) == "let through"


def test_a_body_that_is_too_long_is_not_read():
    assert asked([(b"content-length", b"11")], keys=()) == 413
    assert asked([(b"content-length", b"-1")], keys=()) == 413
    with pytest.raises(ApiError, match="10 bytes"):
        asked([], body=b"x" * 11, keys=())  # without a length, it is counted


def test_a_body_that_turns_out_too_long_is_told_so_whatever_the_application_says():
    sent = []

    async def app(scope, receive, send):
        with suppress(ApiError):
            await receive()
        await send({"type": "http.response.start", "status": 400, "headers": []})
        await send({"type": "http.response.body", "body": b"could not be read"})

    async def receive():
        return {"type": "http.request", "body": b"x" * 11}

    async def send(message):
        sent.append(message)

    asyncio.run(Guard(app, (), body_bytes=10)({"type": "http", "headers": []}, receive, send))
    assert [message.get("status") for message in sent] == [413, None]
    assert b"10 bytes" in sent[1]["body"]


def test_keys_of_the_environment_and_of_a_file(tmp_path):
    file = tmp_path / "keys"
    file.write_text(f"# mine\n{KEY}-file\n\n")
    assert read_keys(f"{KEY}, ", file) == (KEY, f"{KEY}-file")
    assert read_keys("", None) == ()
    with pytest.raises(ValueError, match="at least 16"):
        read_keys("short", None)


def test_counters_and_gauges_as_prometheus_reads_them():
    metrics = Metrics()
    metrics.add("tokens", 3)
    metrics.add("tokens", 4)
    metrics.add("requests", path="/x", status="200")
    assert metrics.text({"waiting": 2}).splitlines() == [
        "# TYPE unspool_requests_total counter",
        'unspool_requests_total{path="/x",status="200"} 1',
        "# TYPE unspool_tokens_total counter",
        "unspool_tokens_total{} 7",
        "# TYPE unspool_waiting gauge",
        "unspool_waiting 2",
    ]
