import json

import pytest

from unspool.cli.chat import COMMANDS, EXAMPLES

ASKED = ("chat", "--greedy", "--max-new-tokens", "4", "--seed", "7")


def talk(unspool, piped, *lines, options=()):
    piped("".join(f"{line}\n" for line in lines).encode())
    return unspool(*ASKED, *options)


def test_lines_are_answered_one_after_the_other(unspool, loaded, piped):
    status, out, err = talk(unspool, piped, "a", "", "b")
    assert (status, out) == (0, "bcab\ncabc\n")
    assert err == "unspool: stopped at --max-new-tokens\n" * 2
    assert loaded == [("smollm2", "cpu")]


def test_the_decoder_and_the_seed_are_shown_and_changed(unspool, loaded, piped):
    lines = ("/decoder", "/decoder Sample(TopK(1))", "a", "/seed", "/seed 3")
    status, out, _ = talk(unspool, piped, *lines)
    assert (status, out) == (0, "Greedy()\nSample(TopK(k=1))\nbcab\n7\n3\n")


def test_a_turn_is_taken_back_and_the_rest_saved(unspool, loaded, piped, tmp_path):
    path = tmp_path / "talk.json"
    status, out, _ = talk(unspool, piped, "a", "b", "/undo", f"/save {path}", "/quit", "a")
    assert (status, out) == (0, f"bcab\ncabc\nremoved: b\nwrote {path}\n")
    assert [message["content"] for message in json.loads(path.read_text())["messages"]] == ["a", "bcab"]


def test_a_loop_is_stopped_and_reported(unspool, loaded, piped):
    piped(b"a\n")
    status, out, err = unspool("chat", "--greedy", "--max-new-tokens", "400")
    assert status == 0
    assert len(out) < 200
    assert err == "unspool: stopped: the answer repeated itself\n"


def test_help_names_every_command(unspool, loaded, piped):
    status, out, _ = talk(unspool, piped, "/help")
    assert status == 0
    for command in COMMANDS:
        assert f"  {command} " in out
        assert command in EXAMPLES


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("/dekoder", "unknown command '/dekoder': did you mean '/decoder'?"),
        ("/decoder Top", "unknown decoder 'Top'"),
        ("/seed x", "/seed takes a whole number, not 'x'"),
        ("/undo", "the conversation is empty: there is no turn to undo"),
        ("/undo 2", "/undo does not take an argument"),
        ("/save", "/save needs the name of a file"),
        ("/save /nowhere/at/all.json", "/nowhere/at/all.json: there is no folder"),
        ("z", "'z' is not one of abc"),
    ],
)
def test_a_script_ends_at_the_first_mistake(unspool, loaded, piped, line, message):
    status, out, err = talk(unspool, piped, line, "a")
    assert (status, out) == (2, "")
    assert err.startswith(f"unspool: {message}")


def test_on_a_terminal_a_mistake_is_said_and_the_talk_goes_on(unspool, loaded, monkeypatch, terminal, capsys):
    import sys

    from unspool.cli import main

    keyboard = terminal("stdin")
    keyboard.write("/seed x\na\n")
    keyboard.seek(0)
    assert main([*ASKED]) == 0
    out, err = capsys.readouterr()
    assert out == "> > bcab\n> "
    assert err.splitlines()[0] == "unspool: /seed takes a whole number, not 'x'"
    assert sys.stdin is keyboard
