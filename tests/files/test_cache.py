import pytest

from unspool.files import cache
from unspool.files.cache import cache_folder, check_room


def test_the_variable_names_the_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("UNSPOOL_CACHE", str(tmp_path / "here"))
    assert cache_folder() == tmp_path / "here"


def test_without_the_variable_it_is_the_systems_cache_folder(monkeypatch):
    monkeypatch.delenv("UNSPOOL_CACHE", raising=False)
    assert cache_folder().name == "unspool"
    assert cache_folder().is_absolute()


def test_room_is_asked_for_before_anything_is_written(monkeypatch, tmp_path):
    check_room(tmp_path / "new" / "folder", 1)
    assert (tmp_path / "new" / "folder").is_dir()
    with pytest.raises(OSError, match=r"MiB are free in .*folder, \d+ MiB are needed"):
        check_room(tmp_path / "new" / "folder", 1 << 60)
    monkeypatch.setattr(cache, "SPARE_BYTES", 1 << 60)
    with pytest.raises(OSError, match="are needed"):
        check_room(tmp_path, 1)
