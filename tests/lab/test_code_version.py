from dataclasses import replace

from unspool.lab import claim as module
from unspool.lab.claim import code_version


def version(root, monkeypatch, claim):
    monkeypatch.setattr(module, "PACKAGE", root)
    module._package.cache_clear()
    try:
        return code_version(claim)
    finally:
        module._package.cache_clear()


def test_the_fingerprint_changes_with_the_code_of_a_claim(coin, tmp_path, monkeypatch):
    files = ["decode/a.py", "cli/b.py", "lab/claims/coin.py", "lab/claims/other.py", "lab/small_models.py"]
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    before, found = version(tmp_path, monkeypatch, coin), {}
    for name in files:
        (tmp_path / name).write_text("2")
        found[name] = version(tmp_path, monkeypatch, coin) != before
        (tmp_path / name).write_text("1")
    assert found == dict(zip(files, [True, False, True, False, True], strict=True))
    assert version(tmp_path, monkeypatch, replace(coin, name="other")) == before  # of equal files


def test_it_is_short_and_the_same_every_time(coin):
    assert code_version(coin) == code_version(coin)
    assert len(code_version(coin)) == 12


def test_a_claim_that_imports_from_another_depends_on_it(coin, tmp_path, monkeypatch):
    claims = tmp_path / "lab/claims"
    claims.mkdir(parents=True)
    (claims / "coin.py").write_text("from unspool.lab.claims.other import toss\n")
    (claims / "other.py").write_text("1")
    before = version(tmp_path, monkeypatch, coin)
    (claims / "other.py").write_text("2")
    assert version(tmp_path, monkeypatch, coin) != before
