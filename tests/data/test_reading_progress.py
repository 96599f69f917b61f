from __future__ import annotations

import pytest

from unspool.data.rows import no_progress, progress_bar


def test_nothing_is_shown_unless_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("read", 10, show=False) as advance:
        assert advance is no_progress
        advance(10)
    assert capsys.readouterr() == ("", "")


def test_a_bar_is_for_terminals_only(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("read", 10, show=True) as advance:
        advance(10)
    assert "read" not in "".join(capsys.readouterr())


@pytest.mark.parametrize("total", [100_000, 0])
def test_a_terminal_sees_what_is_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, total: int
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    with progress_bar("encode", total, show=True) as advance:
        for _ in range(10):
            advance(10_000)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "encode" in shown.err
    assert ("100%" in shown.err) == (total > 0)
