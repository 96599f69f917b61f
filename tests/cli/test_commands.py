"""Help, examples, unknown names, --version and shell completion of the whole command line."""

import re
import shlex
import shutil
import subprocess

import pytest

import unspool as us
from unspool.cli.commands import COMMANDS, command_parser, completion_script
from unspool.cli.parser import CommandGroup

LEAVES = {
    (name, *sub): command
    for name, group in COMMANDS.items()
    for sub, command in (
        [((it,), leaf) for it, leaf in group.commands.items()]
        if isinstance(group, CommandGroup)
        else [((), group)]
    )
}


@pytest.mark.parametrize("words", [(), *((name,) for name in COMMANDS), *LEAVES], ids=" ".join)
def test_help_shows_an_example(unspool, words):
    status, out, _ = unspool(*words, "--help")
    assert status == 0
    assert f"  unspool {' '.join(words)}".rstrip() in out.partition("example")[2] or words == ("completion",)


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_examples_can_be_parsed(words):
    text = LEAVES[words].examples.replace("\\\n", " ")
    commands = re.findall(
        r"^ +(?:.*\| |[A-Z_]+=\S+ |[A-Z_]+=\$\(.*?\) )?(unspool [^>)]*?)(?: >.*)?$", text, re.M
    )
    found = 0
    for command in commands:
        if "…" not in command:
            args = command_parser().parse_args(shlex.split(command)[1:])
            assert args.run is LEAVES[words].run
            found += 1
    assert found or words == ("completion",)


INTERACTIVE = {("completion",), ("serve",), ("rate", "answer")}


@pytest.mark.parametrize("words", [it for it in LEAVES if it not in INTERACTIVE], ids=" ".join)
def test_every_command_with_results_has_json(unspool, words):
    assert "--json" in unspool(*words, "--help")[1]


def test_version(unspool):
    assert unspool("--version") == (0, f"unspool {us.__version__}\n", "")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            ["genrate"],
            "'genrate' is not a known command: did you mean 'generate' or 'rate'? See unspool --help",
        ),
        (
            ["diagnose", "loop"],
            "'loop' is not a known command: did you mean 'loops'? See unspool diagnose --help",
        ),
        (["rate"], "the following arguments are required: SUBCOMMAND; see unspool rate --help"),
        (["generate", "a", "--decoder", "Sample(TopQ(1))"], "unknown decoder 'TopQ': did you mean 'TopP', "),
        (["generate", "a", "--model", "smolm2"], "no model 'smolm2': did you mean 'smollm2'?"),
    ],
)
def test_an_unknown_name_suggests_the_nearest_ones(unspool, argv, message):
    status, out, err = unspool(*argv)
    assert (status, out) == (2, "")
    assert err.startswith(f"unspool: {message}")
    assert err.count("'") <= 8


@pytest.mark.parametrize("argv", [["--debug", "thresholds"], ["thresholds", "--debug"]])
def test_debug_may_be_given_before_or_after_the_subcommand(unspool, loaded, tmp_path, argv):
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    assert "Traceback" in unspool("diagnose", *argv, "tiny", "--text", empty)[2]
    assert "Traceback" not in unspool("diagnose", "thresholds", "tiny", "--text", empty)[2]


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_knows_commands_and_options(unspool, shell):
    status, out, _ = unspool("completion", shell)
    assert status == 0
    for word in ("diagnose", "thresholds", "max-new-tokens", "repetition-penalty"):
        assert word in out
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=out, text=True, check=True)


def complete(*words):
    """The completions of the last word in bash."""
    script = completion_script(command_parser(), "bash")
    script += (
        f"COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; _unspool; echo ${{COMPREPLY[@]}}"
    )
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["unspool", "ge"], ["generate"]),
        (["unspool", "rate", "e"], ["export"]),
        (["unspool", "generate", "--model", "bible", "--max"], ["--max-new-tokens"]),
        (["unspool", "rate", "prepare", "--scale", "p"], ["preference"]),
        (["unspool", "completion", "z"], ["zsh"]),
    ],
)
def test_bash_completes_the_last_word(words, expected):
    assert complete(*words) == expected
