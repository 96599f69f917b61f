import pytest
from pydantic import ValidationError

from unspool.serve.requests import SYNONYMS, ChatRequest, CompletionRequest, field_warning, ignored_fields


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
        {"suffix": "x"},
        {"seed": 2**70},
        {"n": True},
        {"n": "2"},
        {"temperature": True},
        {"stream": 1},
        {"prompt": [True]},
        {"stop_token_ids": [True]},
        {"logit_bias": {"12": True}},
        {"logit_bias": {"x": 1}},
    ],
)
def test_values_out_of_bounds_and_of_other_types_are_refused(wrong):
    with pytest.raises(ValidationError):
        CompletionRequest(**{"model": "m", "prompt": "x", **wrong})


def test_prompts_of_every_kind_are_taken():
    for prompt in ("x", [1, 2], ["x", "y"], [[1], [2]]):
        assert CompletionRequest(model="m", prompt=prompt).prompt == prompt
    chat = ChatRequest(model="m", messages=[{"role": "user", "content": "x"}])
    assert chat.messages[0].content == "x"


def test_the_tokens_of_a_bias_are_strings_as_in_every_json_object():
    biased = CompletionRequest(model="m", prompt="x", temperature=1, logit_bias={"12": -1})
    assert biased.logit_bias == {12: -1.0}


def test_null_means_the_default():
    fields = {"temperature": None, "stop": None, "response_format": None, "top_k": None, "n": None}
    assert CompletionRequest(model="m", prompt="x", **fields) == CompletionRequest(model="m", prompt="x")
    with pytest.raises(ValidationError):
        CompletionRequest(model="m", prompt=None)


def test_unknown_fields_are_named_in_a_warning():
    body = ChatRequest(
        model="m",
        messages=[{"role": "user", "content": [{"type": "text", "text": "x", "cache": 1}], "sender": 2}],
        user="me",
        metadata={},
        frequencey_penalty=1,
    )
    assert list(ignored_fields(body)) == ["frequencey_penalty", "messages.sender", "messages.content.cache"]
    assert field_warning(["a", "b\r\nc", "a"]) == '299 unspool "ignored: a, b??c"'
    assert field_warning([f"f{k}" for k in range(12)]).endswith('f9 and 2 more"')


@pytest.mark.parametrize("synonym", SYNONYMS)
def test_fields_of_other_servers_are_renamed(synonym):
    name, _, inner = SYNONYMS[synonym].partition(".")
    value = {"choice": ["a"], "json": {"type": "object"}}.get(inner, "a" if inner else 1)
    if name == "thinking_budget":
        body = ChatRequest(model="m", messages=[{"role": "user", "content": "x"}], **{synonym: value})
    else:
        body = CompletionRequest(model="m", prompt="x", **{synonym: value})
    found = getattr(body, name)
    assert (found.model_dump(by_alias=True)[inner] if inner else found) == value
    assert list(ignored_fields(body)) == []


def test_a_field_under_its_own_name_counts_more_than_a_synonym():
    assert CompletionRequest(model="m", prompt="x", max_tokens=3, n_predict=5).max_tokens == 3
    assert CompletionRequest(model="m", prompt="x", max_tokens=3, n_predict=None).max_tokens == 3
