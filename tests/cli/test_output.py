import io
import json
import math

import pytest

from unspool.cli.output import ClosedOutput, check_output, json_line, opened, shown


def test_a_terminal_obeys_no_escape_sequence(terminal):
    assert shown("a\x1b[2Jb\x9bc\x7f\n\té", terminal()) == "a�[2Jb�c�\n\té"


def test_a_pipe_gets_the_text_as_it_is():
    assert shown("a\x1b[2Jb", io.StringIO()) == "a\x1b[2Jb"


def test_json_is_strict():
    line = json_line({"logps": (-1.5, -math.inf), "nested": [{"x": math.nan}], "text": "é\n", "n": 3})
    assert line == '{"logps": [-1.5, null], "nested": [{"x": null}], "text": "é\\n", "n": 3}'
    assert json.loads(line)["logps"] == [-1.5, None]


def test_json_escapes_marks_of_direction_and_control_characters():
    line = json_line({"text": "a\u202eb\u2067c\x9b"})
    assert line == r'{"text": "a\u202eb\u2067c\u009b"}'
    assert json.loads(line)["text"] == "a\u202eb\u2067c\x9b"


def test_what_cannot_be_written_to_is_refused(tmp_path, monkeypatch):
    check_output(None)
    check_output(tmp_path / "new.txt")
    with pytest.raises(IsADirectoryError, match="a folder; name a file in it"):
        check_output(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere"):
        check_output(tmp_path / "nowhere" / "new.txt")
    monkeypatch.setattr("sys.stdout", ClosedOutput())
    with pytest.raises(OSError, match="it is closed"):
        check_output(None)
    assert not list(tmp_path.iterdir())


def test_standard_output_where_no_path_is_given(capsys):
    with opened(None) as file:
        file.write("here\n")
    assert capsys.readouterr().out == "here\n"


def test_a_file_holds_each_line_as_soon_as_it_is_written(tmp_path):
    path = tmp_path / "out.txt"
    with opened(path) as file:
        file.write("é one\n")
        assert path.read_bytes() == "é one\n".encode()
