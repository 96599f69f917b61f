"""Texts held to JSON schemas, by every kind of search: each of them parses and validates."""

import json
from decimal import Decimal
from pathlib import Path

import pytest
import torch
from jsonschema import Draft202012Validator

import unspool as us
from unspool.models.rnn_models import RNNConfig
from unspool.models.transformer_lm import TransformerConfig
from unspool.tokenization.vocabulary import train_bpe

SCHEMAS = json.loads(
    (Path(__file__).parents[2] / "benchmarks" / "grammar_schemas.json").read_text(encoding="utf-8")
)
LONGEST = 250
LINES = [
    '{"name": "value", "list": [true, false, null, 1.5]}',
    "The quick brown fox jumps over the lazy dog.",
]


@pytest.fixture(scope="module")
def model():
    """It has learnt nothing, and would write anything: what is right about a text is the grammar's doing."""
    torch.manual_seed(0)
    text = train_bpe(LINES * 20, 330)
    config = TransformerConfig(
        vocab_size=text.vocab_size, width=24, layers=1, heads=2, kv_heads=2, head_width=12, inner_width=24
    )
    model = config.build(text).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def valid(schema, out):
    assert out.finish_reason == "eos", out.text
    # 1.11 is a multiple of 0.01 in decimals, and not in binary fractions.
    exact = json.loads(json.dumps(schema), parse_float=Decimal)
    Draft202012Validator(exact).validate(json.loads(out.text, parse_float=Decimal))
    return json.loads(out.text)


def test_every_schema_is_one():
    assert len(SCHEMAS) == 10
    for schema in SCHEMAS.values():
        Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("name", SCHEMAS)
def test_two_hundred_texts_are_what_their_schemas_say(model, name):
    """Twenty of each schema: five by greedy search, ten drawn, five by a beam."""
    schema = SCHEMAS[name]
    rule = us.Grammar(json_schema=schema)
    prompts = ["a", '{"', "The fox", "1", "\n"]
    asked = {"max_new_tokens": LONGEST, "seed": 1}
    texts = us.generate(model, prompts, us.Greedy(rule), **asked)
    drawn = us.generate(model, prompts, us.Sample(us.Temperature(1.5), us.TopP(0.95), rule), n=2, **asked)
    texts += [out for group in drawn for out in group]
    texts += us.generate(model, "a", us.Beam(5, rule), n=5, **asked)
    assert len(texts) == 20
    values = [valid(schema, out) for out in texts]
    assert len({json.dumps(value) for value in values}) > 1


OTHERS = {
    "BeamSample": lambda draft, rule: us.BeamSample(3, rule),
    "ConstrainedBeam": lambda draft, rule: us.ConstrainedBeam(3, ("red",), rule),
    "ContrastiveSearch": lambda draft, rule: us.ContrastiveSearch(4, 0.6, rule),
    "DiverseBeam": lambda draft, rule: us.DiverseBeam(4, 2, 0.5, rule),
    "MBR": lambda draft, rule: us.MBR(4, us.Sample(rule)),
    "Speculative": lambda draft, rule: us.Speculative(draft, us.Temperature(1.3), rule, length=3),
    "StochasticBeam": lambda draft, rule: us.StochasticBeam(3, rule),
}


@pytest.mark.parametrize("decoder", OTHERS)
def test_every_other_search(model, decoder):
    torch.manual_seed(1)
    draft = TransformerConfig(
        vocab_size=model.vocab_size, width=8, layers=1, heads=2, kv_heads=2, head_width=4, inner_width=8
    )
    schema = SCHEMAS["person"]
    made = OTHERS[decoder](draft.build(model.tokenizer).eval(), us.Grammar(json_schema=schema))
    for out in us.generate(model, ["a", "The fox"], made, max_new_tokens=LONGEST, seed=3):
        value = valid(schema, out)
        assert decoder != "ConstrainedBeam" or "red" in json.dumps(value)


def test_a_text_is_the_same_alone_in_a_batch_and_streamed(model):
    decoder = us.Sample(us.Temperature(1.2), us.Grammar(json_schema=SCHEMAS["nested"]))
    prompts, seeds = ["a", "The fox", "1"], [3, 4, 5]
    together = us.generate(model, prompts, decoder, max_new_tokens=LONGEST, seed=seeds)
    for prompt, seed, out in zip(prompts, seeds, together, strict=True):
        assert us.generate(model, prompt, decoder, max_new_tokens=LONGEST, seed=seed).tokens == out.tokens
        streamed = us.stream(model, prompt, decoder, max_new_tokens=LONGEST, seed=seed)
        assert "".join(piece.text for piece in streamed) == out.text


def test_a_stop_string_cuts_a_text_and_says_so(model):
    decoder = us.Greedy(us.Grammar(json_schema=SCHEMAS["person"]))
    out = us.generate(model, "a", decoder, max_new_tokens=LONGEST, stop=['"age"'])
    assert out.finish_reason == "stop"
    assert out.text.startswith("{")
    assert "age" not in out.text


def test_a_recurrent_model_a_contrast_and_an_ensemble(model):
    torch.manual_seed(2)
    other = RNNConfig(vocab_size=model.vocab_size, width=16).build(model.tokenizer).eval()
    schema = SCHEMAS["either"]
    for made in (other, us.Contrast(model, other), us.Ensemble((model, other))):
        for decoder in (us.Greedy, us.Sample, lambda rule: us.Beam(3, rule)):
            out = us.generate(
                made, "a", decoder(us.Grammar(json_schema=schema)), max_new_tokens=LONGEST, seed=0
            )
            valid(schema, out)


def test_the_models_that_come_along():
    """Words, pieces of words and characters: whatever a vocabulary is made of."""
    bible, dates = us.load("bible"), us.load("dates")
    rule = us.Grammar(regex="(And|But) the [a-z]{3,9} (said|went|spake)[.]")
    for out in us.generate(bible, ["In the beginning", "Then"], us.Sample(rule), max_new_tokens=40, seed=1):
        assert out.text.strip().split()[0] in ("And", "But")
        assert out.finish_reason == "eos"
    sources = ["march 3, 1999", "the 5th of may 2021"]
    plain = us.generate(dates, sources, us.Greedy())
    held = us.generate(dates, sources, us.Greedy(us.Grammar(regex=r"\d{4}-\d{2}-\d{2}")))
    assert [out.text for out in held] == [out.text for out in plain]
    only = us.generate(dates, sources, us.Beam(3, us.Grammar(choices=["2000-01-01", "1999-12-31"])))
    assert {out.text for out in only} <= {"2000-01-01", "1999-12-31"}


def test_smollm2_writes_what_it_is_asked_for():
    """All ten schemas on this model: benchmarks/grammar.py."""
    model = us.load("smollm2")
    for name, decoder in (
        ("person", us.Greedy),
        ("pattern", us.Sample),
        ("number", lambda rule: us.Beam(3, rule)),
    ):
        made = decoder(us.Grammar(json_schema=SCHEMAS[name]))
        out = us.generate(model, "An example in JSON:\n", made, max_new_tokens=LONGEST, seed=1)
        valid(SCHEMAS[name], out)
    answer = us.generate(
        model,
        [{"role": "user", "content": "Is ice cold? Answer yes or no."}],
        us.Greedy(us.Grammar(choices=["Yes", "No"])),
    )
    assert answer.text in ("Yes", "No")
