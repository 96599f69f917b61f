import os
import shutil
from pathlib import Path

import pytest

from unspool.io import (
    complete_folder,
    fsync_path,
    new_file,
    new_folder,
    remove_abandoned,
    remove_folder,
    rename_folder,
    temporary_sibling,
)


def write(path, text, *, replace=False, meanwhile=lambda: None):
    with new_folder(path, replace=replace) as folder:
        (folder / "a").write_text(text)
        meanwhile()
        (folder / "b").write_text(text)


def content(path):
    """The text of a complete folder; None where there is none."""
    folder = complete_folder(path)
    if not folder.exists():
        return None
    first, second = ((folder / name).read_text() for name in "ab")
    assert first == second
    return first


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.fixture
def kill_at(monkeypatch):
    """From its n-th change of the disk on, the process does nothing any more: not even tidy up."""
    state = {"left": None}

    def watched(change):
        def call(*args, **options):
            if state["left"] is not None:
                if state["left"] == 0:
                    raise Killed
                state["left"] -= 1
            return change(*args, **options)

        return call

    for owner, name in (
        *((Path, name) for name in ("mkdir", "rename", "replace", "write_text")),
        *((os, name) for name in ("fsync", "rmdir", "unlink")),
        (shutil, "rmtree"),
    ):
        monkeypatch.setattr(owner, name, watched(getattr(owner, name)))

    def arm(moment):
        state["left"] = moment

    return arm


def test_a_folder_appears_with_all_its_files(tmp_path):
    path = tmp_path / "deep" / "run"
    with new_folder(path) as folder:
        (folder / "a").write_text("x")
        assert not path.exists()
        assert folder.parent == path.parent  # so that a rename suffices
    assert (path / "a").read_text() == "x"
    assert [entry.name for entry in path.parent.iterdir()] == ["run"]


def test_a_failing_block_leaves_nothing(tmp_path):
    def fail():
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        write(tmp_path / "run", "x", meanwhile=fail)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_kept(tmp_path):
    write(tmp_path / "run", "old")
    with pytest.raises(FileExistsError, match="run exists already; remove it or choose another name"):
        write(tmp_path / "run", "new")
    assert content(tmp_path / "run") == "old"


def test_a_folder_that_appears_meanwhile_is_kept(tmp_path):
    with pytest.raises(FileExistsError, match="exists already"):
        write(tmp_path / "run", "late", meanwhile=lambda: write(tmp_path / "run", "early"))
    assert content(tmp_path / "run") == "early"
    assert [entry.name for entry in tmp_path.iterdir()] == ["run"]


def test_an_empty_folder_is_filled(tmp_path):
    (tmp_path / "run").mkdir()
    write(tmp_path / "run", "new")
    assert content(tmp_path / "run") == "new"


def test_replacing_keeps_no_trace_of_the_old(tmp_path):
    write(tmp_path / "run", "old")
    write(tmp_path / "run", "new", replace=True)
    assert content(tmp_path / "run") == "new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["run"]


def test_what_would_be_lost_is_not_replaced(tmp_path):
    write(tmp_path / "run", "old")
    (tmp_path / "run" / "notes.txt").touch()
    with pytest.raises(FileExistsError, match=r"holds notes\.txt, which would be lost"):
        write(tmp_path / "run", "new", replace=True)
    assert content(tmp_path / "run") == "old"
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError, match="is a file, not a folder"):
        write(tmp_path / "file", "new", replace=True)


def test_a_kill_at_any_moment_leaves_nothing_half_written(tmp_path, kill_at):
    for moment in range(100):
        path = tmp_path / str(moment) / "run"
        kill_at(moment)
        try:
            write(path, "new")
        except Killed:
            kill_at(None)
            assert content(path) in (None, "new")
        else:
            break
    kill_at(None)
    assert moment > 5
    assert content(path) == "new"


def test_a_kill_at_any_moment_of_a_replacement_leaves_the_old_or_the_new(tmp_path, kill_at):
    seen = set()
    for moment in range(100):
        path = tmp_path / str(moment) / "run"
        write(path, "old")
        kill_at(moment)
        try:
            write(path, "new", replace=True)
        except Killed:
            kill_at(None)
            seen.add((path.exists(), content(path)))
            write(path, "newer", replace=True)  # and one may go on from there
            assert content(path) == "newer"
        else:
            break
        finally:
            kill_at(None)
    # The third is the moment between the two renames.
    assert seen == {(True, "old"), (True, "new"), (False, "old")}


def test_what_killed_processes_left_is_swept_when_it_is_old(tmp_path):
    for name, age in (("old", 90_000), ("young", 60)):
        left = tmp_path / f".x.unspool-unfinished-{name}"
        left.mkdir()
        (left / "part").touch()
        now = left.stat().st_mtime
        os.utime(left, (now - age, now - age))
    write(tmp_path / "run", "new")
    assert {entry.name for entry in tmp_path.iterdir()} == {"run", ".x.unspool-unfinished-young"}


def test_a_file_takes_the_place_of_another_in_one_step(tmp_path):
    path = tmp_path / "deep" / "file"
    for text in ("old", "new"):
        with new_file(path) as fresh:
            fresh.write_text(text)
            assert fresh.parent == path.parent  # so that a rename suffices
            assert not path.exists() or path.read_text() == "old"
        assert path.read_text() == text
        assert [entry.name for entry in path.parent.iterdir()] == ["file"]


def test_a_file_that_is_not_finished_leaves_the_old_one(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError), new_file(path) as fresh:
        fresh.write_text("half \ud800")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_to_the_file_itself_is_no_trace(tmp_path):
    path = tmp_path / "file"
    path.write_text("one")
    with new_file(path) as fresh:
        os.link(path, fresh)  # to rename one link onto another of the same file does nothing
    assert list(tmp_path.iterdir()) == [path]


def test_a_kill_at_any_moment_leaves_the_old_file_or_the_new(tmp_path, kill_at):
    seen = set()
    for moment in range(100):
        path = tmp_path / str(moment) / "file"
        path.parent.mkdir()
        path.write_text("old")
        kill_at(moment)
        try:
            with new_file(path) as fresh:
                fresh.write_text("new")
        except Killed:
            kill_at(None)
            seen.add(path.read_text())
        else:
            break
        finally:
            kill_at(None)
    assert seen == {"old", "new"}


def test_an_unfinished_file_is_removed(tmp_path):
    for make in (Path.mkdir, Path.touch):
        with temporary_sibling(tmp_path / "x") as fresh:
            make(fresh)
    with temporary_sibling(tmp_path / "x"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_put_refuses_a_name_that_is_taken(tmp_path):
    write(tmp_path / "run", "early")
    late = tmp_path / "late"
    late.mkdir()
    with pytest.raises(FileExistsError, match="exists already"):
        rename_folder(late, tmp_path / "run")
    assert content(tmp_path / "run") == "early"


def test_a_discarded_folder_is_there_whole_or_not_at_all(tmp_path, kill_at):
    for moment in range(100):
        path = tmp_path / str(moment) / "run"
        write(path, "old")
        kill_at(moment)
        try:
            remove_folder(path)
        except Killed:
            kill_at(None)
            assert content(path) in (None, "old")
        else:
            break
        finally:
            kill_at(None)
    assert moment > 1
    assert list(path.parent.iterdir()) == []


def test_whoever_knows_that_nobody_else_writes_sweeps_all(tmp_path):
    (tmp_path / ".x.unspool-unfinished-1").mkdir()
    (tmp_path / ".y.unspool-unfinished-2").touch()
    (tmp_path / ".my-unfinished-novel").touch()
    remove_abandoned(tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
    remove_abandoned(tmp_path, older=0.0)
    assert [entry.name for entry in tmp_path.iterdir()] == [".my-unfinished-novel"]


def test_all_that_a_folder_holds_is_flushed(tmp_path, monkeypatch):
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "deep" / "file").touch()
    flushed = []
    monkeypatch.setattr(os, "fsync", lambda file: flushed.append(os.fstat(file).st_ino))
    fsync_path(tmp_path / "in")
    assert flushed == [(tmp_path / "in" / path).stat().st_ino for path in ("deep/file", "deep", ".")]
