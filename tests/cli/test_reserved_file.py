import os
from pathlib import Path

import pytest

from unspool.cli.output import reserved


def test_what_is_written_stays(tmp_path):
    path = tmp_path / "a.svg"
    with reserved(path):
        assert not path.exists()  # a killed process would leave it empty
        path.write_text("drawn")
    assert path.read_text() == "drawn"


def test_work_that_fails_leaves_no_empty_file(tmp_path):
    path = tmp_path / "a.svg"
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), reserved(path):
            raise error
        assert not path.exists()


def test_what_was_there_before_stays_as_it_was(tmp_path):
    full, empty = tmp_path / "full.svg", tmp_path / "empty.svg"
    full.write_text("old")
    empty.touch()
    for path in (full, empty):
        with pytest.raises(ValueError, match="no"), reserved(path):
            raise ValueError("no")
    assert (full.read_text(), empty.read_text()) == ("old", "")


def test_a_path_that_cannot_be_written_to_fails_before_the_work(tmp_path):
    for path in (tmp_path, tmp_path / "no" / "a.svg"):
        with pytest.raises((IsADirectoryError, FileNotFoundError)), reserved(path):
            pytest.fail("work was done")


def test_without_a_path_nothing_is_asked():
    with reserved(None):
        pass


def test_a_device_stays(tmp_path):
    with reserved(Path(os.devnull)):
        pass
    assert Path(os.devnull).is_char_device()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with reserved(pipe):  # without waiting for a reader
        pass
    assert pipe.is_fifo()
