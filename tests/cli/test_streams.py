"""Streams that are closed, full or a stand-in. Real ones belong to a process of its own."""

import os
import subprocess
import sys

import pytest

from unspool.cli.output import usable_streams, written_to

SCRIPT = """
import sys
import unspool.cli.generate as verb
def run(args):
    {body}
    return 0
verb.run = run
sys.exit(__import__("unspool.cli").cli.main(["generate", "a"]))
"""


def run(body, redirected="", unbuffered="", before=""):
    """(status, standard output, standard error) of a verb with this body, its streams redirected by a shell."""
    done = subprocess.run(
        ["sh", "-c", f'{before} exec "$0" -c "$1" {redirected}', sys.executable, SCRIPT.format(body=body)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    return done.returncode, done.stdout, done.stderr


CLOSED = "unspool: standard output: it is closed, so that there is nowhere to write to\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_closed_output_is_an_error_only_where_something_is_written(unbuffered):
    assert run('print("text")', ">&-", unbuffered) == (2, "", CLOSED)
    assert run('print("note", file=sys.stderr)', ">&-", unbuffered) == (0, "", "note\n")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_output_that_has_no_room_left(tmp_path, unbuffered):
    said = "unspool: standard output: File too large\n"
    assert run('print("text")', f">'{tmp_path}/out.txt'", unbuffered, "ulimit -f 0;") == (2, "", said)


def test_closed_errors_do_not_end_up_in_the_text():
    assert run('print("text"); raise ValueError("oh")', "2>&-") == (2, "text\n", "")


def test_a_closed_input_is_empty():
    assert run("print(repr(sys.stdin.read()), sys.stdin.isatty())", "<&-") == (0, "'' False\n", "")


def test_no_file_takes_the_number_of_a_closed_stream(tmp_path):
    path = tmp_path / "results.txt"
    body = f'f = open({str(path)!r}, "w"); sys.stderr.write("note\\n"); print(f.fileno() > 2, file=f)'
    assert run(body, "<&- >&- 2>&-")[0] == 0
    assert path.read_text() == "True\n"


def test_all_is_as_before_afterwards(capsys):
    before = sys.stdin, sys.stdout, sys.stderr
    with usable_streams():
        assert sys.stdout is before[1]  # pytest's own: no file of the system's
        print("text")
    assert (sys.stdin, sys.stdout, sys.stderr) == before
    assert capsys.readouterr().out == "text\n"


def test_text_goes_through_as_it_is():
    assert run('print("é\\u2028", end="")') == (0, "é\u2028", "")


def test_a_stream_that_cannot_show_a_character_says_what_to_do(monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    assert run('print("caf\\u00e9")') == (
        2,
        "",
        "unspool: U+00E9 cannot be written in ascii: set PYTHONIOENCODING=utf-8, or give --output PATH\n",
    )


def test_a_file_is_flushed_line_by_line_and_named_in_its_errors(tmp_path):
    path = tmp_path / "out.txt"
    with written_to(path) as file:
        file.write("é one\n")
        assert path.read_bytes() == "é one\n".encode()
    with pytest.raises(FileNotFoundError) as caught:
        written_to(tmp_path / "no" / "folder.txt")
    assert caught.value.filename == str(tmp_path / "no" / "folder.txt")


def test_a_file_that_has_no_room_left_is_named(tmp_path):
    path = tmp_path / "out.txt"
    body = f'from unspool.cli.output import opened; from pathlib import Path\n    with opened(Path({str(path)!r})) as file: file.write("text\\n")'
    assert run(body, before="ulimit -f 0;") == (2, "", f"unspool: {path}: File too large\n")
