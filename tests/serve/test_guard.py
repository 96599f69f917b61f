import asyncio
from contextlib import suppress

import pytest

from unspool.serve.api_error import ApiError
from unspool.serve.guard import Guard, is_owner, read_keys

KEY = "0123456789abcdef"


def asked(headers, body=b"", keys=(KEY,), path="/v1/models"):
    """The status that a client sees, or "let through"."""
    sent = []

    async def app(scope, receive, send):
        await receive()
        sent.append({"status": "let through"})

    async def receive():
        return {"type": "http.request", "body": body}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "headers": headers, "path": path}
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

    asyncio.run(Guard(app, (), body_bytes=10)({"type": "http", "headers": [], "path": "/"}, receive, send))
    assert [message.get("status") for message in sent] == [413, None]
    assert b"10 bytes" in sent[1]["body"]


def test_keys_of_the_environment_and_of_a_file(tmp_path):
    file = tmp_path / "keys"
    file.write_text(f"# mine\n{KEY}-file\n\n")
    assert read_keys(f"{KEY}, ", file) == (KEY, f"{KEY}-file")
    assert read_keys("", None) == ()
    with pytest.raises(ValueError, match="at least 16"):
        read_keys("short", None)


def test_health_needs_no_key_and_no_host():
    assert asked([], path="/health") == "let through"
    assert asked([(b"host", b"10.0.0.7")], keys=(), path="/health") == "let through"
    assert asked([], path="/health/") == asked([], path="/ready") == 401


@pytest.mark.parametrize(
    "header",
    [
        (b"origin", b"https://evil.example"),
        (b"origin", b"null"),
        (b"origin", b"http://localhost.evil.example:8000"),
        (b"sec-fetch-site", b"cross-site"),
    ],
)
def test_other_web_pages_cannot_post_to_a_server_without_keys(header):
    host = (b"host", b"localhost:8000")
    assert asked([host, header], keys=()) == 403
    assert asked([host, (b"origin", b"http://localhost:8000")], keys=()) == "let through"
    assert asked([header, (b"authorization", b"Bearer " + KEY.encode())]) == "let through"


def test_a_body_that_does_not_arrive_ends_the_request():
    sent = []

    async def app(scope, receive, send):
        with suppress(ApiError):
            await receive()
        await send({"type": "http.response.start", "status": 400, "headers": []})

    async def receive():
        await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "headers": [], "path": "/"}
    asyncio.run(Guard(app, (), body_bytes=10, body_seconds=0.02)(scope, receive, send))
    assert sent[0]["status"] == 408


def test_the_first_key_is_the_owners():
    owners = []

    async def app(scope, receive, send):
        owners.append(is_owner(scope))

    for key in ("owner-owner-owner", KEY):
        headers = [(b"authorization", f"Bearer {key}".encode())]
        guard = Guard(app, ("owner-owner-owner", KEY), body_bytes=10)
        asyncio.run(guard({"type": "http", "headers": headers, "path": "/"}, None, None))
    assert owners == [True, False]
    assert is_owner({})
