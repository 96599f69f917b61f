import pytest

import unspool as us
from unspool.decode import DRY, XTC, BadWords, DynamicTemperature, MinLength, Mirostat, TopNSigma
from unspool.serve.generation import TRANSFORMS, answer_grammar, check_decoder, decoder_of
from unspool.serve.requests import CompletionRequest, Limits


def asked(**told):
    body = CompletionRequest(model="m", prompt="x", **told)
    grammar = answer_grammar(body)
    return decoder_of(body, [] if grammar is None else [grammar])


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
        ({"top_k": -1, "min_tokens": 0, "mirostat": 0, "dry_multiplier": 0}, us.Sample()),
        ({"min_tokens": 4, "bad_words": ["no"]}, us.Sample(BadWords(["no"]), MinLength(4))),
        ({"repeat_penalty": 1.1, "typ_p": 0.9}, us.Sample(us.RepetitionPenalty(1.1), us.Typical(0.9))),
        ({"mirostat": 2, "mirostat_tau": 3}, us.Sample(Mirostat(3, 0.1))),
        ({"dry_multiplier": 0.8, "dry_penalty_last_n": 64}, us.Sample(DRY(0.8, last=64))),
        ({"dry_multiplier": 0.8, "dry_penalty_last_n": 0}, us.Sample()),
        ({"xtc_probability": 0.5}, us.Sample(XTC(0.1, 0.5))),
        ({"xtc_probability": 0.5, "xtc_threshold": 0.6}, us.Sample()),
        ({"temperature": 1, "dynatemp_range": 0.5}, us.Sample(DynamicTemperature(0.5, 1.5))),
        ({"top_n_sigma": 1}, us.Sample(TopNSigma(1))),
    ],
)
def test_fields_become_a_search(told, search):
    assert asked(**told) == search


def test_every_field_of_the_table_exists():
    assert set(TRANSFORMS) <= set(CompletionRequest.model_fields)


def test_a_grammar_comes_last_in_every_search():
    held = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    grammar = us.Grammar(json_schema={"type": "object"})
    assert asked(response_format=held, top_k=3) == us.Sample(us.TopK(3), grammar)
    assert asked(response_format={"type": "json_object"}, temperature=0) == us.Greedy(grammar)
    assert asked(response_format=held, decoder="Sample(TopK(3))") == us.Sample(us.TopK(3), grammar)
    assert asked(response_format=held, decoder="Beam(3)") == us.Beam(3, grammar)
    assert asked(response_format={"type": "text"}) == us.Sample()
    with pytest.raises(ValueError, match="response_format, tools and thinking_budget need"):
        asked(response_format=held, decoder="MBR(4)")
    with pytest.raises(ValueError, match="needs json_schema"):
        asked(response_format={"type": "json_schema"})


@pytest.mark.parametrize(
    ("told", "grammar"),
    [
        ({"guided_json": {"type": "object"}}, us.Grammar(json_schema={"type": "object"})),
        ({"guided_regex": "[ab]+"}, us.Grammar(regex="[ab]+")),
        ({"guided_choice": ["a", "b"]}, us.Grammar(choices=["a", "b"])),
        ({"structured_outputs": {"json_object": True}}, us.Grammar(json_schema={"type": "object"})),
    ],
)
def test_structured_outputs_are_grammars(told, grammar):
    assert asked(**told) == us.Sample(grammar)


def test_grammars_of_llama_cpp_are_translated():
    (grammar,) = asked(grammar='root ::= "yes" | "no"').transforms
    assert 'start: "yes"' in grammar.lark
    with pytest.raises(ValueError, match="one of json"):
        asked(structured_outputs={})
    with pytest.raises(ValueError, match="one of response_format and"):
        asked(guided_regex="a", response_format={"type": "json_object"})


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
