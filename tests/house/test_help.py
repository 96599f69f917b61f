"""Every verb's help has an example, and the examples are commands that the parser takes."""

import re
import shlex

import pytest

from unspool.cli.verbs import VERBS, command_parser


def examples(text):
    """The commands in a help text: every "unspool …" at the beginning of a line or after a pipe."""
    return re.findall(r"^ +(?:.*\| )?(unspool .*)$", text, re.MULTILINE)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_shows_examples_that_can_be_parsed(verb):
    found = [
        command for command in examples(VERBS[verb].EXAMPLES) if command.split()[:2] == ["unspool", verb]
    ]
    assert found
    for command in found:
        assert command_parser().parse_args(shlex.split(command)[1:]).verb == verb


def test_a_wrong_example_is_noticed(capsys):
    (command,) = examples("examples:\n  echo x | unspool generate --tempreature 3\n")
    with pytest.raises(SystemExit):
        command_parser().parse_args(shlex.split(command)[1:])
    assert "--tempreature" in capsys.readouterr().err
