"""The server keeps to its OpenAPI document: whatever is sent, no 5xx, and no answer but those written there."""

import socket
import threading

import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

import unspool as us
from unspool.serve.requests import Limits
from unspool.serve.scheduler import Scheduler
from unspool.serve.server import Server, create_app
from unspool.serve.streaming import WorkerPool


@pytest.fixture(scope="module")
def document():
    limits = Limits(new_tokens=4, rows=8, width=8)
    server = Server({"bible": Scheduler(us.load("bible"), 2**24)}, WorkerPool(), limits)
    listener = socket.create_server(("127.0.0.1", 0))
    run = uvicorn.Server(uvicorn.Config(create_app(server), log_level="critical", ws="none"))
    thread = threading.Thread(target=run.run, args=([listener],), daemon=True)
    thread.start()
    yield schemathesis.openapi.from_url(f"http://127.0.0.1:{listener.getsockname()[1]}/openapi.json")
    run.should_exit = True
    thread.join(30)


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_every_answer_is_in_the_document(document, mode):
    """Requests that keep to it, and requests that do not."""
    found = [result.ok() for result in document.get_all_operations()]
    assert len(found) >= 7
    for operation in found:
        try:
            cases = operation.as_strategy(generation_mode=mode)
            _sent(cases, mode is GenerationMode.POSITIVE)
        except Unsatisfiable:  # nothing can be wrong where nothing is taken
            assert mode is GenerationMode.NEGATIVE
            assert operation.method == "get"


def _sent(cases, good):
    @settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(case=cases)
    def sent(case):
        if good and isinstance(case.body, dict) and "model" in case.body:
            case.body["model"] = "bible"  # a model that there is, so that most of these are answered
            case.body.pop("decoder", None)
        # What a schema cannot say (no more than 8 texts in all, best_of not below n) is refused by 400.
        case.call_and_validate(excluded_checks=[positive_data_acceptance])

    sent()
