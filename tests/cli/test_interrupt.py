import signal
import threading

import pytest

from unspool.cli.output import leaving_imports_at_once


@pytest.fixture(autouse=True)
def handler():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_outside_an_import_it_is_pythons_own():
    with leaving_imports_at_once(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_inside_an_import_the_process_ends(monkeypatch, tmp_path, capsys):
    class LeftError(Exception):
        pass

    def leave(status):
        raise LeftError(status)

    monkeypatch.setattr("unspool.cli.output.os._exit", leave)
    (tmp_path / "interrupting_module.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with leaving_imports_at_once(), pytest.raises(LeftError, match="130"):
        import interrupting_module  # noqa: F401
    assert capsys.readouterr().err == "unspool: interrupted\n"


def test_a_signal_that_is_ignored_stays_ignored():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with leaving_imports_at_once():
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        signal.raise_signal(signal.SIGINT)


def test_a_thread_runs_commands_too():
    ran = []

    def run():
        with leaving_imports_at_once():
            ran.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert ran == [signal.default_int_handler]
