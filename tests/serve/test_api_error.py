import json

import pytest

from unspool.serve.api_error import ApiError, error_body, told
from unspool.serve.shared_model import DeadlinePassed
from unspool.serve.worker_pool import QueueFull


@pytest.mark.parametrize(
    ("error", "begun", "status"),
    [
        (ValueError("x"), False, 400),
        (ValueError("NaN"), True, 500),
        (KeyError("x"), False, 500),
        (QueueFull(3), False, 429),
        (DeadlinePassed(), True, 504),
        (ApiError(404, "x"), False, 404),
    ],
)
def test_every_error_has_its_status(error, begun, status):
    assert told(error, begun=begun).status == status


def test_what_is_inside_stays_inside():
    assert "secret" not in told(RuntimeError("secret"), begun=True).message
    assert told(QueueFull(3), begun=False).headers == {"Retry-After": "3"}


def test_the_form_is_openais():
    said = json.loads(error_body(ApiError(400, "no", "n")))
    assert said == {"error": {"message": "no", "type": "invalid_request_error", "param": "n", "code": None}}
