import socket

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
    seen = served(monkeypatch)
    assert main(["serve", "bible", "--port", "0", "--drain", "3"]) == 0
    assert seen["host"] == "127.0.0.1"
    assert (seen["drain_seconds"], seen["read_seconds"]) == (3, 600)


def served(monkeypatch):
    """What `unspool serve` runs, which returns at once here."""
    seen = {}

    def run(app, listener, **settings):
        seen.update(settings, app=app, host=listener.getsockname()[0])

    monkeypatch.setattr("unspool.serve.guard.serve_until_stopped", run)
    monkeypatch.delenv("UNSPOOL_API_KEYS", raising=False)
    return seen


def test_options_may_stand_in_a_file(monkeypatch, tmp_path, capsys):
    seen, file = served(monkeypatch), tmp_path / "serve.toml"
    file.write_text('models = ["bible"]\nport = 0\ntimeout = 5\nstrict = true\n[alias]\n"gpt-4o" = "bible"\n')
    assert main(["serve", "--config", str(file), "--timeout", "7"]) == 0
    assert seen["read_seconds"] == 7
    server = seen["app"]._app.app._app.state.server
    assert (server.aliases, server.is_strict) == ({"gpt-4o": "bible"}, True)
    for text, message in (("prot = 1", "did you mean --port"), ("port = 'x'", "port"), ("a", "TOML")):
        file.write_text(text)
        assert main(["serve", "--config", str(file)]) == 2
        assert message in capsys.readouterr().err


def test_a_port_that_is_taken_is_found_before_the_model_is_loaded(capsys, monkeypatch):
    served(monkeypatch)
    monkeypatch.setattr("unspool.cli.serve.load_generator", lambda *_: pytest.fail("loaded"))
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert main(["serve", "bible", "--port", str(other.getsockname()[1])]) == 2
    assert "give another --port" in capsys.readouterr().err


def test_a_port_beyond_the_last_and_a_missing_file_are_refused(capsys, monkeypatch, tmp_path):
    served(monkeypatch)
    assert main(["serve", "bible", "--port", "99999"]) == 2
    assert "port 99999 does not exist: give a --port from 0 to 65535" in capsys.readouterr().err
    monkeypatch.setenv("UNSPOOL_API_KEYS", "k" * 16)
    assert main(["serve", "bible", "--host", "no such name"]) == 2
    assert "--host no such name is not an address of this machine: " in capsys.readouterr().err
    assert main(["serve", "bible", "--config", str(tmp_path / "no.toml")]) == 2
    assert "no.toml: No such file or directory; see" in capsys.readouterr().err


def test_an_alias_names_a_served_model(capsys, monkeypatch):
    served(monkeypatch)
    assert main(["serve", "bible", "--alias", "x=bibel"]) == 2
    assert "did you mean 'bible'" in capsys.readouterr().err
