"""The attacks of docs/serve.md against a server on a local port: each is refused or ended, and others are served."""

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx2 as httpx
import pytest
import uvicorn

import unspool as us
from unspool.serve.guard import Guard, TimedProtocol
from unspool.serve.requests import Limits
from unspool.serve.scheduler import Scheduler
from unspool.serve.server import Server, create_app
from unspool.serve.streaming import WorkerPool

WEB = httpx.Client(verify=False, timeout=60)
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


class ImpatientProtocol(TimedProtocol):
    header_seconds = 0.5
    read_seconds = 0.5
    max_connections = 40


@pytest.fixture(scope="module")
def served():
    scheduler = Scheduler(us.load("bible"), 2**24)
    app = create_app(Server({"bible": scheduler}, WorkerPool(8, 8), Limits(body_bytes=1_000_000)))
    app.app = Guard(app.app._app, (), 1_000_000, body_seconds=0.5)
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)  # the system holds no whole stream
    config = uvicorn.Config(app, http=ImpatientProtocol, log_level="critical", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    WEB.close()
    server.should_exit = True
    thread.join(30)


def connect(port):
    return socket.create_connection(("127.0.0.1", port), 20)


def answer_of(client):
    """All that the server sends until it closes the connection."""
    parts = []
    try:
        while part := client.recv(65536):
            parts.append(part)
    except ConnectionError:
        pass
    return b"".join(parts)


def post(port, body=None, headers=None, **fields):
    body = {"model": "bible", "prompt": "In the", "max_tokens": 2, **fields} if body is None else body
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"content-type": "application/json", **(headers or {})}
    return WEB.post(f"http://127.0.0.1:{port}/v1/completions", content=content, headers=headers)


def test_slow_headers_end_the_connection(served):
    began = time.monotonic()
    with connect(served) as client:
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nX-Slow: ")
        for _ in range(4):
            time.sleep(0.1)
            client.sendall(b"a")
        assert answer_of(client) == b""
    assert time.monotonic() - began < 15
    assert post(served).status_code == 200


def test_slow_headers_of_a_second_request_end_the_connection(served):
    with connect(served) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.recv(4096).startswith(b"HTTP/1.1 200")
        client.sendall(b"GET /health HTTP/1.1\r\nX-Slow: ")
        assert b"200" not in answer_of(client)


def test_half_a_body_is_answered_by_408(served):
    with connect(served) as client:
        client.sendall(HEAD + b'Content-Length: 100\r\n\r\n{"model"')
        assert answer_of(client).startswith(b"HTTP/1.1 408")
    assert post(served).status_code == 200


def test_a_flood_of_idle_connections_is_bounded(served):
    clients = [connect(served) for _ in range(80)]
    try:
        for client in clients:
            assert answer_of(client) == b""  # closed: at once, or after the time limit of a header
    finally:
        for client in clients:
            client.close()
    assert post(served).status_code == 200


def test_a_client_that_never_reads_is_cut_off(served):
    body = {"model": "bible", "prompt": "In the", "max_tokens": 200, "n": 32, "stream": True, "logprobs": 20}
    body["ignore_eos"] = True
    content = json.dumps(body).encode()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        client.connect(("127.0.0.1", served))
        client.sendall(HEAD + f"Content-Length: {len(content)}\r\n\r\n".encode() + content)
        began = time.monotonic()
        while time.monotonic() - began < 30:
            time.sleep(0.2)
            metrics = WEB.get(f"http://127.0.0.1:{served}/metrics").text
            if "unspool_requests_running 0" in metrics and time.monotonic() - began > 1:
                break
        assert "unspool_requests_running 0" in metrics
        assert not answer_of(client).endswith(b"0\r\n\r\n")


NESTED_SCHEMA: dict = {"type": "string"}
for _ in range(60):
    NESTED_SCHEMA = {"type": "object", "properties": {"a": NESTED_SCHEMA}, "required": ["a"]}
SCHEMAS = {
    "many choices": {"enum": [f"{k:06}" for k in range(60_000)]},
    "many properties": {
        "type": "object",
        "properties": {f"p{k}": {"type": "integer"} for k in range(20_000)},
    },
    "large counts": {"type": "string", "pattern": "^(((a{1,300}){1,300}){1,300})$"},
    "nested": NESTED_SCHEMA,
    "recursive": {"$ref": "#"},
    "alternatives": {"anyOf": [{"type": "string", "pattern": f"^(a|b)*a(a|b){{{k}}}$"} for k in range(40)]},
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_large_schemas_do_not_stop_others(served, name):
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMAS[name]}}
    with ThreadPoolExecutor(1) as pool:
        attack = pool.submit(post, served, response_format=form)
        longest = 0.0
        while not attack.done():
            began = time.monotonic()
            assert WEB.get(f"http://127.0.0.1:{served}/health").status_code == 200
            longest = max(longest, time.monotonic() - began)
            time.sleep(0.01)
    assert attack.result().status_code in (200, 400)
    assert longest < 5


@pytest.mark.parametrize(
    "spec",
    [
        "Sample(" * 500,
        "MBR(4, " * 200 + "Sample()" + ")" * 200,
        "Sample" + ".a" * 1900,
        "Sample(TopK(" + "1+" * 1900 + "1))",
        "Sample(TopK(" + "-" * 3900 + "1))",
        "[" * 3900,
    ],
    ids=range(6),
)
def test_deep_decoders_are_refused(served, spec):
    assert post(served, decoder=spec).status_code == 400


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", "x" * 900),
        ("decoder", "Sample(" + "x" * 3000 + ")"),
        ("decoder", "x" * 3000),
        ("response_format", {"type": "x" * 3000}),
        ("guided_regex", "(" + "x" * 3000),
        ("grammar", "root ::= " + "x" * 3000),
        ("x" * 3000, 1),
        ("n", "x" * 3000),
        ("logit_bias", {"x" * 3000: 1}),
    ],
)
def test_errors_quote_at_most_200_characters(served, field, value):
    answer = post(served, **{field: value})
    text = answer.text + answer.headers.get("warning", "")
    assert answer.status_code in (400, 404) or field == "x" * 3000
    assert "x" * 201 not in text


def test_wrong_hosts_and_other_sites_are_refused(served):
    for headers, status in (
        ({"host": "evil.example"}, 421),
        ({"host": f"localhost.evil.example:{served}"}, 421),
        ({"origin": "https://evil.example", "content-type": "text/plain"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"origin": f"http://localhost:{served}"}, 200),
    ):
        assert post(served, headers=headers).status_code == status
