import re

import pytest

from unspool.cli.compare import COLUMNS, cells, print_table
from unspool.evaluate.comparison import Answer, DecoderRow

TEXT = "a long way up the stairs of the lighthouse,\nand a longer way down"
ROW = DecoderRow(
    "Sample(Temperature(0.8), TopP(0.95), RepetitionPenalty(1.2))",
    "S()",
    (Answer(TEXT, (1, 2, 3), (-1.0,) * 3, "eos"),),
    2.0,
)


@pytest.fixture
def shown(terminal, monkeypatch):
    """What a terminal of so many columns shows, without its colours."""

    def show(columns, rows=(ROW,), prompts=("up",)):
        monkeypatch.setenv("COLUMNS", str(columns))
        screen = terminal()
        print_table(rows, prompts)
        return re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue()).splitlines()

    return show


@pytest.mark.parametrize("columns", [20, 40, 60, 89, 90, 140])
def test_nothing_is_lost_at_any_width(shown, columns):
    lines = shown(columns)
    assert max(map(len, lines)) <= columns
    said = re.sub(r"\s", "", "".join(lines))
    for word in ("lighthouse", "⏎", *("-1.00", "1.5", "log p".replace(" ", ""), "tok/s")):
        assert word in said
    if columns < 90:
        assert re.sub(r"\s", "", TEXT.replace("\n", "⏎")) in said


def test_a_narrow_terminal_gives_the_text_its_whole_width(shown):
    lines = shown(60)
    (at,) = (n for n, line in enumerate(lines) if line.startswith("a long way"))
    assert len(lines[at]) > 45
    assert any(line.startswith("log p -1.00  rep-4 0.00") for line in lines)


def test_a_wide_one_has_a_table(shown):
    header = next(line for line in shown(120) if "decoder and its text" in line)
    assert all(name in header for name in COLUMNS)


def test_what_a_model_says_steers_nothing(shown):
    evil = DecoderRow("x", "x", (Answer("[red]\x1b[2J\u202eabc", (1,), (-1.0,), "eos"),), 1.0)
    for columns in (60, 120):
        said = "".join(shown(columns, [evil], ["[bold]\x07p"]))
        assert "[red]�[2J�abc" in said
        assert "[bold]�p" in said


def test_the_measures_in_their_order():
    assert cells(ROW) == ("-1.00", "0.00", "1.00", "0.67", "–", "3", "1.5")


def test_without_a_terminal_there_is_room(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    print_table([ROW], ["up", "down"])
    out = capsys.readouterr().out
    assert out.startswith("2 prompts; the texts below answer the first: up\n")
    assert "decoder and its text" in out
