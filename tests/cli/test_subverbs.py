import argparse
from types import SimpleNamespace

from unspool.cli.parser import Parser, add_subverbs, all_examples

ONE = SimpleNamespace(
    SUMMARY="Do one.",
    EXAMPLES="examples:\n  unspool x one\n\nAnd a word about it.\n",
    add_options=lambda parser: parser.add_argument("--n", type=int),
)


def test_a_sub_command_has_its_options_and_the_flag_of_all():
    parser = Parser(prog="x")
    parser.add_argument("--debug", action="store_true")
    add_subverbs(parser, {"one": ONE}, "what")
    assert parser.parse_args(["one", "--n", "3"]) == argparse.Namespace(what="one", n=3, debug=False)
    assert parser.parse_args(["--debug", "one"]).debug
    assert parser.parse_args(["one", "--debug"]).debug


def test_examples_are_the_commands_alone():
    assert all_examples({"one": ONE, "two": ONE}) == "examples:\n  unspool x one\n  unspool x one"
