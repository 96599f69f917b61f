import pytest
from pydantic import ValidationError

from unspool.serve.api_error import ApiError, as_api_error, error_record, invalid_fields
from unspool.serve.requests import CompletionRequest
from unspool.serve.scheduler import RequestTimeout


@pytest.mark.parametrize(
    ("error", "started", "status"),
    [
        (ValueError("x"), False, 400),
        (ValueError("NaN"), True, 500),
        (KeyError("x"), False, 500),
        (RequestTimeout(), True, 504),
        (ApiError(404, "x"), False, 404),
    ],
)
def test_every_error_has_its_status(error, started, status):
    assert as_api_error(error, started=started).status == status


def test_what_is_inside_stays_inside():
    assert "secret" not in as_api_error(RuntimeError("secret"), started=True).message


def test_the_form_is_openais():
    said = error_record(ApiError(400, "no", "n"))
    assert said == {"error": {"message": "no", "type": "invalid_request_error", "param": "n", "code": None}}


@pytest.mark.parametrize(
    ("changes", "param", "said"),
    [
        ({"prompt": [10**9]}, "prompt.0", "at most 10000000"),
        ({"prompt": [[1, 2], [3, -1]]}, "prompt.1.1", "at least 0"),
        ({"prompt": ""}, "prompt", "must not be empty"),
        ({"prompt": ["a", ""]}, "prompt.1", "must not be empty"),
        ({"n": 0}, "n", "at least 1"),
        ({"stop": ["a"] * 17}, "stop", "at most 16 entries"),
        ({"prompt": None}, "prompt", "required"),
        ({"prompt": {"a": 1}}, "prompt", "must be a"),
        ({"temperature": "hot"}, "temperature", "must be a number"),
        ({"response_format": {"type": "xml"}}, "response_format.type", "must be one of 'text'"),
        ({"suffix": "x"}, "suffix", "is not supported"),
    ],
)
def test_of_several_ways_to_say_a_field_the_one_meant_is_told(changes, param, said):
    with pytest.raises(ValidationError) as found:
        CompletionRequest.model_validate({"model": "m", "prompt": "a", **changes})
    error = invalid_fields([{**it, "loc": ("body", *it["loc"])} for it in found.value.errors()])
    assert (error.status, error.param) == (400, param)
    assert said in error.message


def test_a_json_body_that_is_sent_as_a_form_is_explained():
    with pytest.raises(ValidationError) as found:
        CompletionRequest.model_validate(b'{"model": "m", "prompt": "a"}')
    error = invalid_fields([{**it, "loc": ("body", *it["loc"])} for it in found.value.errors()])
    assert "the body must be a JSON object, with the header content-type: application/json" in error.message


def test_a_message_holds_no_control_characters():
    found = ApiError(400, "unknown model 'a\x1b[2J\u202eb'\nsecond line", "mo\x9bdel")
    assert found.message == str(found) == "unknown model 'a�[2J�b' second line"
    assert found.param == "mo�del"
