import argparse

import pytest

from unspool.cli.parser import Parser, add_length_options, add_model_options, natural, positive, seed_of


@pytest.fixture
def parser():
    parser = Parser(prog="unspool try")
    add_model_options(parser)
    add_length_options(parser, new_tokens=7)
    return parser


def test_defaults(parser):
    args = parser.parse_args([])
    assert (args.model, args.device, args.max_new_tokens, args.seed) == (None, "cpu", 7, None)
    assert args.dtype == "float32"
    assert (args.weights, args.engine) == (None, None)


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "many", ""])
def test_positive_refuses(text):
    with pytest.raises(argparse.ArgumentTypeError, match="whole number of 1 or more"):
        positive(text)


def test_natural_takes_zero():
    assert natural("0") == 0
    with pytest.raises(argparse.ArgumentTypeError, match="whole number of 0 or more"):
        natural("-1")


def test_an_error_names_the_option_and_the_way_to_the_help(parser, capsys):
    with pytest.raises(SystemExit) as left:
        parser.parse_args(["--seed", "-3"])
    assert left.value.code == 2
    assert capsys.readouterr().err == (
        "unspool: argument --seed: '-3' is not a whole number of 0 or more; see unspool try --help\n"
    )


def test_a_device_without_numbers_is_refused(parser, capsys):
    with pytest.raises(SystemExit):
        parser.parse_args(["--device", "meta"])
    assert "tensors on 'meta' do not have values; use cpu" in capsys.readouterr().err
    assert parser.parse_args(["--device", "cuda:1"]).device == "cuda:1"


def test_a_seed_is_drawn_where_none_was_asked_for(parser):
    assert seed_of(parser.parse_args(["--seed", "5"])) == 5
    drawn = {seed_of(parser.parse_args([])) for _ in range(4)}
    assert len(drawn) > 1
    assert all(0 <= seed < 2**32 for seed in drawn)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (["M", "--sede", "1"], "--sede 1 (did you mean --seed?); see unspool try --help"),
        (["M", "-seed=1"], "-seed=1 (did you mean --seed?); see unspool try --help"),
        (["one", "two"], "two (quote arguments that contain spaces); see unspool try --help"),
        (["--thing", "M"], "--thing (write THING without --thing); see unspool try --help"),
        (["M", "--wholly-unlike"], "--wholly-unlike; see unspool try --help"),
    ],
)
def test_an_unknown_option_is_refused_with_the_help_of_the_command(parser, capsys, said, words):
    parser.add_argument("thing", metavar="THING")
    whole = Parser(prog="unspool")
    verbs = whole.add_subparsers(parser_class=lambda **_: parser)
    verbs.add_parser("try")
    with pytest.raises(SystemExit) as left:
        whole.parse_args(["try", *said])
    assert left.value.code == 2
    assert capsys.readouterr().err == f"unspool: unrecognized arguments: {words}\n"


def test_a_text_is_refused_by_a_command_that_takes_only_options(parser, capsys):
    verbs = Parser(prog="unspool").add_subparsers(parser_class=lambda **_: parser)
    with pytest.raises(SystemExit):
        verbs.add_parser("try").parse_args(["Hi"])
    assert capsys.readouterr().err == (
        "unspool: unrecognized arguments: Hi (this command takes only options); see unspool try --help\n"
    )
