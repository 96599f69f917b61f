from importlib.metadata import PackageNotFoundError

import pytest

from unspool.integrations.ray import actor_pool as module


def test_a_missing_package_is_told_with_what_to_install(monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(module, "version", missing)
    with pytest.raises(ImportError, match=r"pip install 'unspool\[ray\]'"):
        module.ray_package()


def test_an_old_one_is_told_with_what_is_needed(monkeypatch):
    monkeypatch.setattr(module, "version", lambda name: "2.9.3")
    with pytest.raises(ImportError, match=r"ray 2\.9\.3 is too old, and 2\.40 needed"):
        module.ray_package()


def test_the_one_that_is_there_will_do():
    assert module.ray_package().data.Dataset
