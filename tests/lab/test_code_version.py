import sys
from types import SimpleNamespace

import pytest

from unspool.lab import claim as module
from unspool.lab.claim import code_version


@pytest.fixture
def version(coin, tmp_path, monkeypatch):
    """The fingerprint of the coin, measured by lab/claims/coins.py, in a package at `tmp_path`."""
    own = SimpleNamespace(__file__=str(tmp_path / "lab/claims/coins.py"))
    monkeypatch.setitem(sys.modules, coin.measure.__module__, own)
    monkeypatch.setattr(module, "PACKAGE", tmp_path)

    def compute():
        module._package.cache_clear()
        return code_version(coin)

    yield compute
    module._package.cache_clear()


def test_fingerprint_changes_with_the_code_of_a_claim(version, tmp_path):
    files = ["decode/a.py", "cli/b.py", "lab/claims/coins.py", "lab/claims/other.py", "lab/small_models.py"]
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    before, changed = version(), {}
    for name in files:
        (tmp_path / name).write_text("2")
        changed[name] = version() != before
        (tmp_path / name).write_text("1")
    assert changed == dict(zip(files, [True, False, True, False, True], strict=True))


def test_fingerprint_is_short_and_constant(coin):
    assert code_version(coin) == code_version(coin)
    assert len(code_version(coin)) == 12
