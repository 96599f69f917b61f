import threading

import numba
import pytest

from unspool.engine import threads
from unspool.engine.compile_cache import CompiledEntry
from unspool.engine.numba_internals import source_fingerprint


def test_the_fingerprint_changes_with_any_source_file(tmp_path):
    (tmp_path / "a.py").write_text("1")
    (tmp_path / "b.py").write_text("2")
    first = source_fingerprint(tmp_path)
    assert first == source_fingerprint(tmp_path)
    (tmp_path / "b.py").write_text("3")
    assert source_fingerprint(tmp_path) != first


def test_compiling_is_announced_in_one_line_and_only_when_it_happens(capsys):
    @numba.njit
    def new(x):
        return x + 1

    said = CompiledEntry("a sum", new)
    assert (said.ready, said(1), said.ready) == (False, 2, True)
    text = capsys.readouterr().err
    assert text.startswith("unspool: compiling a sum for this processor …")
    assert text.endswith(" s\n")
    assert text.count("\n") == 1
    assert CompiledEntry("a sum", new)(2) == 3
    assert capsys.readouterr().err == ""


def test_an_entry_that_failed_is_not_ready(capsys):
    @numba.njit
    def refusing(x):
        if x > 0:
            raise ValueError("no")
        return x

    entry = CompiledEntry("a refusal", refusing)
    with pytest.raises(ValueError, match="no"):
        entry(1)
    assert not entry.ready
    assert entry(0) == 0
    assert entry.ready


def test_the_first_call_of_an_entry_is_made_by_one_thread(capsys, monkeypatch):
    monkeypatch.setattr(
        threads, "BOUNDSCHECK", False
    )  # nothing here is a kernel, whose indices would be looked at
    called, met = [], threading.Barrier(2)

    def new():
        called.append(threading.current_thread().name)
        if len(called) > 1:
            met.wait(timeout=20)  # the second call is there twice

    entry = CompiledEntry("nothing", new)
    entry.run(2)
    assert len(called) == 1
    entry.run(2)
    assert len(set(called)) == 2
