"""The verb itself (`unspool.cli.diagnose`): its diagnoses are parsed, explained and run."""

import re
import shlex

import pytest

from unspool.cli.diagnose import DIAGNOSES, EXAMPLES
from unspool.cli.verbs import command_parser


@pytest.mark.parametrize("name", DIAGNOSES)
def test_every_diagnosis_shows_examples_that_can_be_parsed(name):
    found = re.findall(r"^ +(unspool .*)$", DIAGNOSES[name].EXAMPLES, re.MULTILINE)
    assert found
    for command in found:
        args = command_parser().parse_args(shlex.split(command)[1:])
        assert (args.verb, args.diagnosis) == ("diagnose", name)
        assert command in EXAMPLES


def test_help_lists_the_diagnoses(unspool):
    status, out, _ = unspool("diagnose", "--help")
    assert status == 0
    assert all(name in out for name in DIAGNOSES)


def test_a_diagnosis_is_needed(unspool):
    status, _, err = unspool("diagnose")
    assert status == 2
    assert "WHAT" in err


@pytest.mark.parametrize("argv", [["--debug", "thresholds"], ["thresholds", "--debug"]])
def test_debug_may_stand_on_either_side(unspool, loaded, tmp_path, argv):
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    assert "Traceback" in unspool("diagnose", *argv, "tiny", "--text", empty)[2]
    assert "Traceback" not in unspool("diagnose", "thresholds", "tiny", "--text", empty)[2]
