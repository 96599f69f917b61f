import pytest
from pydantic import ValidationError

from unspool.serve.api_error import ApiError, error_record
from unspool.serve.responses import COMPLETION, Completion, Envelope, Refusal, usage

CHOICE = {"index": 0, "text": "a", "logprobs": None, "finish_reason": "stop"}


def test_what_is_told_is_what_is_written_here():
    whole = Envelope(COMPLETION, "m").whole([CHOICE], usage([[1]], 1))
    assert Completion.model_validate(whole).choices[0].text == "a"
    with pytest.raises(ValidationError, match="extra"):
        Completion.model_validate({**whole, "extra": 1})
    assert Refusal.model_validate(error_record(ApiError(404, "no", "model"))).error.param == "model"
