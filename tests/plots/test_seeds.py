import sys

import pytest
from matplotlib.figure import Figure

from unspool.plots.seeds import bars, chart, draw_curves, lines

RUNS = [
    {"a": 1.0, "b": 3.0, "x": [0.0, 1.0], "y": [1.0, 2.0]},
    {"a": 2.0, "b": 5.0, "x": [0.0, 1.0], "y": [3.0, 2.0]},
]


def test_bars_are_means_with_intervals_and_a_dot_per_run():
    figure = Figure()
    chart(bars({"a": "one", "b": "two"}, "share", limit=3.5))(figure, RUNS)
    (axes,) = figure.axes
    assert [bar.get_width() for bar in axes.patches] == [1.5, 4.0]
    assert axes.lines[0].get_xdata().tolist() == [1.0, 2.0, 3.0, 5.0]
    assert [it.get_text() for it in axes.get_yticklabels()] == ["one", "two"]
    assert axes.lines[-1].get_xdata() == [3.5, 3.5]
    (interval,) = axes.collections
    ends = [segment[:, 0].tolist() for segment in interval.get_segments()]
    assert ends[0] == pytest.approx(
        [1.5 - 12.706 / 2, 1.5 + 12.706 / 2], abs=1e-3
    )  # t with one degree of freedom
    assert axes.get_xlabel() == "share"


def test_lines_are_means_with_a_band():
    figure = Figure()
    chart(lines("x", {"y": "it"}, "time", "size", ticks={0: "begin", 1: "end"}), lines("x", {"x": "time"}))(
        figure, RUNS
    )
    axes, _ = figure.axes
    assert axes.lines[0].get_ydata().tolist() == [2.0, 2.0]
    # Means 2 and 2; the first point has standard error 1, and t₀.₉₇₅(1) = 12.706.
    assert axes.collections[0].get_paths()[0].vertices[:, 1].max() == pytest.approx(14.706, abs=1e-3)
    assert [it.get_text() for it in axes.get_xticklabels()] == ["begin", "end"]


def test_training_curves(tmp_path):
    points = [{"update": update, "nll": 3.0 / update, "lr": 0.1} for update in (1, 2, 3)]
    assert draw_curves([*points, {"update": 3, "valid": 1.5}], tmp_path / "curves.svg")
    assert (tmp_path / "curves.svg").read_text(encoding="utf-8").startswith("<?xml")
    assert [it.name for it in tmp_path.iterdir()] == ["curves.svg"]


def test_training_curves_with_validation_only(tmp_path):
    assert draw_curves([{"update": 3, "valid": 1.5}], tmp_path / "curves.svg")


def test_training_curves_show_the_loss_without_a_likelihood(tmp_path):
    points = [{"update": update, "loss": 3.0 / update, "reward": 0.5, "lr": 0.1} for update in (1, 2)]
    assert draw_curves(points, tmp_path / "curves.svg")
    assert "per target" in (tmp_path / "curves.svg").read_text(encoding="utf-8")


def test_no_training_curves_without_points_or_matplotlib(tmp_path, monkeypatch):
    assert not draw_curves([], tmp_path / "curves.svg")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert not draw_curves([{"update": 1, "nll": 1.0, "lr": 0.1}], tmp_path / "curves.svg")
    assert not list(tmp_path.iterdir())
