import argparse

import pytest

import unspool as us
from unspool import config
from unspool.cli.decoders import (
    add_decoder_options,
    add_decoders_option,
    decoder_spec,
    parse_decoders,
)


def spec(*argv):
    parser = argparse.ArgumentParser()
    add_decoder_options(parser)
    return decoder_spec(parser.parse_args(argv))


def test_shortcuts_apply_in_the_order_written():
    assert spec("--temperature", "0.8", "--top-p", "0.9") == "Sample(Temperature(0.8), TopP(0.9))"
    assert spec("--top-p", "0.9", "--temperature", "0.8") == "Sample(TopP(0.9), Temperature(0.8))"
    assert spec("--min-p", "0.05", "--top-k", "40") == "Sample(MinP(0.05), TopK(40))"


def test_two_commands_in_a_row_do_not_add_up():
    assert spec("--top-k", "3") == spec("--top-k", "3") == "Sample(TopK(3))"


def test_a_specification_and_greedy():
    assert spec("--decoder", "Sample(TopK(40))") == "Sample(TopK(40))"
    assert spec("--greedy") == "Greedy()"


def test_the_default_is_the_documented_one():
    assert spec() == config.DECODER
    assert us.parse(config.DECODER) == us.Sample(us.Temperature(0.8), us.TopP(0.95))


def test_every_shortcut_is_read_by_parse():
    written = spec("--temperature", "0.8", "--top-k", "40", "--top-p", "0.9", "--min-p", "0.05")
    assert us.parse(written) == us.Sample(us.Temperature(0.8), us.TopK(40), us.TopP(0.9), us.MinP(0.05))


def test_temperature_zero_is_greedy():
    assert spec("--temperature", "0") == "Greedy()"
    assert spec("--top-p", "0.9", "--temperature", "0", "--dry") == "Greedy(TopP(0.9), DRY())"


def test_penalties_are_shortcuts_too():
    penalties = ("--repetition-penalty", "1.2", "--dry", "--no-repeat-ngram", "3")
    transforms = (us.RepetitionPenalty(1.2), us.DRY(), us.NoRepeatNgram(3))
    assert us.parse(spec(*penalties)) == us.Sample(*transforms)
    assert us.parse(spec("--greedy", *penalties)) == us.Greedy(*transforms)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--greedy", "--top-p", "0.9"), "--greedy ignores --top-p"),
        (("--decoder", "Greedy()", "--greedy"), "not both"),
        (("--decoder", "Greedy()", "--top-k", "3"), "not both"),
    ],
)
def test_contradictions_are_refused(argv, message):
    with pytest.raises(ValueError, match=message):
        spec(*argv)


def test_every_specification_is_parsed_once_and_checked():
    from unspool.cli.prompts import Prompt

    checked = []
    prompts = [Prompt("a"), Prompt("b", settings={"decoder": "Beam(2)"}), Prompt("c")]
    found = parse_decoders("Greedy()", prompts, checked.append)
    assert found == {"Greedy()": us.Greedy(), "Beam(2)": us.Beam(2)}
    assert checked == list(found.values())


def test_an_option_that_every_line_overrides_is_not_needed():
    from unspool.cli.prompts import Prompt

    prompts = [Prompt("b", settings={"decoder": "Beam(2)"})]
    assert list(parse_decoders("Sample()", prompts, lambda search: None)) == ["Beam(2)"]


def test_a_specification_that_fails_is_named_by_its_line():
    from unspool.cli.prompts import Prompt

    prompts = [Prompt("a"), Prompt("b", where="p.jsonl:2", settings={"decoder": "Bean(2)"})]
    with pytest.raises(ValueError, match=r"^p\.jsonl:2: .*did you mean 'Beam'"):
        parse_decoders("Greedy()", prompts, lambda search: None)
    with pytest.raises(ValueError, match=r"^unknown decoder 'Sampel'"):
        parse_decoders("Sampel()", prompts, lambda search: None)


def test_several_decoders_are_listed_in_their_order():
    parser = argparse.ArgumentParser()
    add_decoders_option(parser)
    assert parser.parse_args([]).decoder is None
    assert parser.parse_args(["--decoder", "Greedy()", "--decoder", "Sample()"]).decoder == [
        "Greedy()",
        "Sample()",
    ]


def test_a_text_is_held_to_a_grammar(tmp_path):
    schema = tmp_path / "who.json"
    schema.write_text('{"type": "object", "properties": {"it\'s": {"type": "string"}}}')
    assert us.parse(spec("--regex", "[0-9]{3}'")) == us.Sample(us.Grammar(regex="[0-9]{3}'"))
    held = us.Grammar(json_schema=schema.read_text())
    assert us.parse(spec("--greedy", "--json-schema", str(schema))) == us.Greedy(held)
    assert us.parse(spec("--top-k", "5", "--json-schema", str(schema))) == us.Sample(us.TopK(5), held)
    for option, value in (("regex", "a"), ("json-schema", str(schema))):
        with pytest.raises(ValueError, match=rf"--decoder excludes --{option}: .*Grammar\("):
            spec("--decoder", "Greedy()", f"--{option}", value)
    schema.write_text("{")
    with pytest.raises(ValueError, match="is not JSON"):
        spec("--json-schema", str(schema))
