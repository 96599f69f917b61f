import pytest

import unspool as us
from unspool.serve.requests import CompletionRequest, search_of


def asked(**told):
    return search_of(CompletionRequest(model="m", prompt="x", **told))


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
    with pytest.raises(ValueError, match="no response_format"):
        asked(response_format=held, decoder="MBR(4)")
    with pytest.raises(ValueError, match="give one"):
        asked(response_format={"type": "json_schema"})


@pytest.mark.parametrize(
    "told", [{"logit_bias": {"x": 1}}, {"logit_bias": {"1": 101}}, {"decoder": "Greedy", "top_k": 2}]
)
def test_what_makes_no_search_is_refused(told):
    with pytest.raises(ValueError):
        asked(**told)
