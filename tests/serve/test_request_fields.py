import pytest
from pydantic import ValidationError

from unspool.serve.requests import ChatRequest, CompletionRequest


@pytest.mark.parametrize(
    "wrong",
    [
        {"n": 0},
        {"n": 10**6},
        {"prompt": []},
        {"prompt": [[]]},
        {"prompt": [-1]},
        {"temperature": -1},
        {"top_p": 0},
        {"stop": [""]},
        {"stop": ["a"] * 17},
        {"logprobs": 21},
        {"unknown": 1},
        {"suffix": "x"},
        {"seed": 2**70},
    ],
)
def test_what_is_out_of_bounds_is_refused(wrong):
    with pytest.raises(ValidationError):
        CompletionRequest(**{"model": "m", "prompt": "x", **wrong})


def test_prompts_of_every_kind_are_taken():
    for prompt in ("x", [1, 2], ["x", "y"], [[1], [2]]):
        assert CompletionRequest(model="m", prompt=prompt).prompt == prompt
    chat = ChatRequest(model="m", messages=[{"role": "user", "content": "x"}])
    assert chat.messages[0].content == "x"
