import errno
import io
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from unspool.cli.output import (
    Table,
    check_output,
    json_line,
    open_output,
    progress_bar,
    reserve_file,
    safe_streams,
    terminal_text,
)


def test_a_terminal_obeys_no_escape_sequence(terminal):
    assert terminal_text("a\x1b[2Jb\x9bc\x7f\n\té", terminal()) == "a�[2Jb�c�\n\té"


def test_a_pipe_gets_the_text_as_it_is():
    assert terminal_text("a\x1b[2Jb", io.StringIO()) == "a\x1b[2Jb"


def test_json_is_strict():
    line = json_line({"logps": (-1.5, -math.inf), "nested": [{"x": math.nan}], "text": "é\n", "n": 3})
    assert line == '{"logps": [-1.5, null], "nested": [{"x": null}], "text": "é\\n", "n": 3}'
    assert json.loads(line)["logps"] == [-1.5, None]


def test_json_escapes_marks_of_direction_and_control_characters():
    line = json_line({"text": "a\u202eb\u2067c\x9b"})
    assert line == r'{"text": "a\u202eb\u2067c\u009b"}'
    assert json.loads(line)["text"] == "a\u202eb\u2067c\x9b"


def test_what_cannot_be_written_to_is_refused(tmp_path):
    check_output(None)
    check_output(tmp_path / "new.txt")
    with pytest.raises(IsADirectoryError, match="is a folder; give the name of a file"):
        check_output(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere"):
        check_output(tmp_path / "nowhere" / "new.txt")
    assert not list(tmp_path.iterdir())


def test_the_error_of_a_full_device_names_it():
    with (
        pytest.raises(OSError, match="No space left on device: '/dev/null'"),
        reserve_file(Path("/dev/null")),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_standard_output_where_no_path_is_given(capsys):
    with open_output(None) as file:
        file.write("here\n")
    assert capsys.readouterr().out == "here\n"


SCRIPT = """
import sys
from dataclasses import replace
from unspool.cli.commands import COMMANDS
def run(args):
    {body}
    return 0
COMMANDS["generate"] = replace(COMMANDS["generate"], run=run)
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


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_text_for_a_closed_output_is_dropped(unbuffered):
    assert run('print("text"); print("note", file=sys.stderr)', ">&-", unbuffered) == (0, "", "note\n")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_output_that_has_no_room_left(tmp_path, unbuffered):
    said = "unspool: File too large\n"
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
    with safe_streams():
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
    with open_output(path) as file:
        file.write("é one\n")
        assert path.read_bytes() == "é one\n".encode()
    with pytest.raises(FileNotFoundError) as caught, open_output(tmp_path / "no" / "folder.txt"):
        pass
    assert caught.value.filename == str(tmp_path / "no" / "folder.txt")


def test_a_file_that_has_no_room_left_is_named(tmp_path):
    path = tmp_path / "out.txt"
    body = f'from unspool.cli.output import open_output; from pathlib import Path\n    with open_output(Path({str(path)!r})) as file: file.write("text\\n")'
    assert run(body, before="ulimit -f 0;") == (2, "", f"unspool: {path}: File too large\n")


def test_written_text_stays_after_an_error(tmp_path):
    path = tmp_path / "a.svg"
    with reserve_file(path):
        assert not path.exists()  # a killed process would leave it empty
        path.write_text("drawn")
    assert path.read_text() == "drawn"


def test_work_that_fails_leaves_no_empty_file(tmp_path):
    path = tmp_path / "a.svg"
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), reserve_file(path):
            raise error
        assert not path.exists()


def test_an_existing_file_is_unchanged_after_an_error(tmp_path):
    full, empty = tmp_path / "full.svg", tmp_path / "empty.svg"
    full.write_text("old")
    empty.touch()
    for path in (full, empty):
        with pytest.raises(ValueError, match="no"), reserve_file(path):
            raise ValueError("no")
    assert (full.read_text(), empty.read_text()) == ("old", "")


def test_a_path_that_cannot_be_written_to_fails_before_the_work(tmp_path):
    for path in (tmp_path, tmp_path / "no" / "a.svg"):
        with pytest.raises((IsADirectoryError, FileNotFoundError)), reserve_file(path):
            pytest.fail("work was done")


def test_without_a_path_nothing_is_asked():
    with reserve_file(None):
        pass


def test_a_device_stays(tmp_path):
    with reserve_file(Path(os.devnull)):
        pass
    assert Path(os.devnull).is_char_device()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with reserve_file(pipe):  # without waiting for a reader
        pass
    assert pipe.is_fifo()


def test_cells_stand_under_their_names(capsys):
    Table(["system", "n"], [["ours", "3"], ["th\x1beirs", "14"]]).print()
    head, _, first, second = capsys.readouterr().out.strip().splitlines()[:4]
    assert head.split() == ["system", "n"]
    assert first.split() == ["ours", "3"]
    assert second.split() == ["th�eirs", "14"]
    assert first.rstrip().endswith(" 3")


def test_nothing_is_cut(capsys):
    Table(["x" * 30] * 2, [["y" * 150, "[bold]z"]]).print()
    out = capsys.readouterr().out
    assert out.count("y") == 150
    assert "[bold]z" in out


def count(shown):
    with progress_bar(5, shown=shown) as update:
        for _ in range(5):
            update(advance=1)


def test_a_bar_on_a_terminal(terminal):
    screen = terminal("stderr")
    count(shown=True)
    assert "5/5" in screen.getvalue()


def test_nothing_where_there_is_no_terminal_or_nothing_to_get_through(terminal, capsys):
    count(shown=True)
    assert capsys.readouterr().err == ""
    screen = terminal("stderr")
    count(shown=False)
    assert screen.getvalue() == ""
