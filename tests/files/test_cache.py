import errno
import os
from pathlib import Path

import pytest

from unspool import io
from unspool.io import (
    cache_folder,
    check_disk_space,
    name_file_in_errors,
    new_file,
    private_folder,
    read_bounded,
)


def test_the_variable_names_the_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("UNSPOOL_CACHE", str(tmp_path / "here"))
    assert cache_folder() == tmp_path / "here"


def test_without_the_variable_it_is_the_systems_cache_folder(monkeypatch):
    monkeypatch.delenv("UNSPOOL_CACHE", raising=False)
    assert cache_folder().name == "unspool"
    assert cache_folder().is_absolute()


def test_room_is_asked_for_before_anything_is_written(monkeypatch, tmp_path):
    check_disk_space(tmp_path / "new" / "folder", 1)
    assert (tmp_path / "new" / "folder").is_dir()
    with pytest.raises(OSError, match=r"MiB are free in .*folder, \d+ MiB are needed"):
        check_disk_space(tmp_path / "new" / "folder", 1 << 60)
    monkeypatch.setattr(io, "MIN_FREE_BYTES", 1 << 60)
    with pytest.raises(OSError, match="are needed"):
        check_disk_space(tmp_path, 1)


def test_a_private_folder_is_made_for_the_user_alone_and_others_are_refused(tmp_path):
    before = os.umask(0)
    try:
        made = private_folder(tmp_path / "a" / "b")
    finally:
        os.umask(before)
    assert [folder.stat().st_mode & 0o777 for folder in (made, made.parent)] == [0o700, 0o700]
    for mode in (0o720, 0o702):
        made.chmod(mode)
        with pytest.raises(PermissionError, match="other users may write into the folder"):
            private_folder(made)


@pytest.mark.parametrize(
    ("mode", "is_own_group", "is_refused"),
    [(0o707, True, True), (0o770, False, True), (0o770, True, False), (0o1777, False, False)],
)
def test_a_folder_that_others_can_replace_is_refused(tmp_path, monkeypatch, mode, is_own_group, is_refused):
    shared = tmp_path / "shared"
    made = private_folder(shared / "a" / "b")
    (tmp_path / "link").symlink_to(shared)
    shared.chmod(mode)
    if not is_own_group:
        monkeypatch.setattr(os, "getgid", lambda: shared.stat().st_gid + 1)
    for path in (made, tmp_path / "link" / "a" / "b"):
        if is_refused:
            with pytest.raises(PermissionError, match="other users may replace the folder"):
                private_folder(path)
        else:
            private_folder(path)


def test_a_file_is_no_private_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        private_folder(tmp_path / "file")
    with pytest.raises(NotADirectoryError):
        private_folder(tmp_path / "file" / "a")


def test_a_folder_of_another_user_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(PermissionError, match="belongs to another user"):
        private_folder(tmp_path)


def test_files_and_devices_are_read_up_to_a_limit(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"x" * 10)
    assert read_bounded(path, 10) == b"x" * 10
    with path.open("r+b") as file:
        file.truncate(5 << 40)  # without a block on the disk
    for endless in (path, Path("/dev/zero")):
        with pytest.raises(ValueError, match=f"{endless} has more than 64 MiB"):
            read_bounded(endless)


class SafetensorError(Exception):
    """As the library calls it."""


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
    ],
)
def test_the_error_of_a_full_disk_names_the_file(tmp_path, error):
    path = tmp_path / "model"
    with pytest.raises(OSError, match="No space left on device") as caught, new_file(path):
        raise error
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(path))


def test_other_errors_are_left_alone(tmp_path):
    for error in (
        FileNotFoundError(errno.ENOENT, "no", "other"),
        SafetensorError("bad header"),
        OSError("x"),
    ):
        with pytest.raises(type(error)) as caught, name_file_in_errors(tmp_path):
            raise error
        assert caught.value is error
