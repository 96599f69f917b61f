import pytest
from pydantic import ValidationError

import unspool as us
from unspool.serve.requests import ChatRequest, CompletionRequest, Limits, check_decoder, decoder_of


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
def test_values_out_of_bounds_are_refused(wrong):
    with pytest.raises(ValidationError):
        CompletionRequest(**{"model": "m", "prompt": "x", **wrong})


def test_prompts_of_every_kind_are_taken():
    for prompt in ("x", [1, 2], ["x", "y"], [[1], [2]]):
        assert CompletionRequest(model="m", prompt=prompt).prompt == prompt
    chat = ChatRequest(model="m", messages=[{"role": "user", "content": "x"}])
    assert chat.messages[0].content == "x"


def asked(**told):
    return decoder_of(CompletionRequest(model="m", prompt="x", **told))


@pytest.mark.parametrize(
    ("told", "search"),
    [
        ({}, us.Sample()),
        ({"temperature": 0}, us.Greedy()),
        (
            {"temperature": 0.5, "top_k": 5, "top_p": 0.9},
            us.Sample(us.Temperature(0.5), us.TopK(5), us.TopP(0.9)),
        ),
        ({"min_p": 0.1, "typical_p": 0.8}, us.Sample(us.Typical(0.8), us.MinP(0.1))),
        ({"num_beams": 4, "presence_penalty": 1}, us.Beam(4, us.PresencePenalty(1))),
        ({"logit_bias": {"3": -100}, "temperature": 0}, us.Greedy(us.LogitBias({3: -100}))),
        (
            {"repetition_penalty": 1.2, "frequency_penalty": 0.5},
            us.Sample(us.RepetitionPenalty(1.2), us.FrequencyPenalty(0.5)),
        ),
        ({"decoder": "Beam(3)"}, us.Beam(3)),
    ],
)
def test_fields_become_a_search(told, search):
    assert asked(**told) == search


def test_a_grammar_comes_last_in_every_search():
    held = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    grammar = us.Grammar(json_schema={"type": "object"})
    assert asked(response_format=held, top_k=3) == us.Sample(us.TopK(3), grammar)
    assert asked(response_format={"type": "json_object"}, temperature=0) == us.Greedy(grammar)
    assert asked(response_format=held, decoder="Sample(TopK(3))") == us.Sample(us.TopK(3), grammar)
    assert asked(response_format=held, decoder="Beam(3)") == us.Beam(3, grammar)
    assert asked(response_format={"type": "text"}) == us.Sample()
    with pytest.raises(ValueError, match="response_format needs"):
        asked(response_format=held, decoder="MBR(4)")
    with pytest.raises(ValueError, match="needs json_schema"):
        asked(response_format={"type": "json_schema"})


@pytest.mark.parametrize(
    "told", [{"logit_bias": {"x": 1}}, {"logit_bias": {"1": 101}}, {"decoder": "Greedy", "top_k": 2}]
)
def test_an_invalid_decoder_is_refused(told):
    with pytest.raises(ValueError):
        asked(**told)


@pytest.mark.parametrize(
    "search",
    [us.Beam(65), us.MBR(65), us.ContrastiveSearch(k=65), us.MBR(4, us.Beam(100)), us.StochasticBeam(70)],
)
def test_a_search_that_is_too_wide_is_refused(search):
    with pytest.raises(ValueError, match="allows 64"):
        check_decoder(search, Limits())


@pytest.mark.parametrize(
    "search", [us.Greedy(), us.Sample(us.TopK(1000)), us.Beam(64), us.MBR(8, us.Sample())]
)
def test_others_are_let_through(search):
    check_decoder(search, Limits())
