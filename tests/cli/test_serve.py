import pytest

from unspool.cli import main


def test_a_host_that_others_reach_needs_keys(capsys, monkeypatch):
    monkeypatch.delenv("UNSPOOL_API_KEYS", raising=False)
    assert main(["serve", "bible", "--host", "0.0.0.0"]) == 2
    assert "--api-keys" in capsys.readouterr().err


def test_a_short_key_is_refused(capsys, monkeypatch):
    monkeypatch.setenv("UNSPOOL_API_KEYS", "short")
    assert main(["serve", "bible"]) == 2
    assert "16" in capsys.readouterr().err


def test_models_are_served_until_the_end(monkeypatch):
    uvicorn = pytest.importorskip("uvicorn")
    seen = {}
    monkeypatch.setattr(uvicorn, "run", lambda app, **told: seen.update(told, app=app))
    monkeypatch.delenv("UNSPOOL_API_KEYS", raising=False)
    assert main(["serve", "bible", "--port", "0"]) == 0
    assert (seen["host"], seen["port"]) == ("127.0.0.1", 0)
