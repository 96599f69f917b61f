from matplotlib.figure import Figure

from unspool.lab.figures import bars, draw, lines, svg
from unspool.lab.results import Finding
from unspool.lab.running import measured

RUNS = [
    {"a": 1.0, "b": 3.0, "x": [0.0, 1.0], "y": [1.0, 2.0]},
    {"a": 2.0, "b": 5.0, "x": [0.0, 1.0], "y": [3.0, 2.0]},
]


def test_bars_are_means_and_dots_are_seeds():
    axes = Figure().subplots()
    bars(axes, RUNS, {"a": "one", "b": "two"})
    assert [bar.get_width() for bar in axes.patches] == [1.5, 4.0]
    assert axes.lines[0].get_xdata().tolist() == [1.0, 2.0, 3.0, 5.0]
    assert [it.get_text() for it in axes.get_yticklabels()] == ["one", "two"]
    upright = Figure().subplots()
    bars(upright, RUNS, {"a": "one"}, across=False)
    assert [bar.get_height() for bar in upright.patches] == [1.5]


def test_lines_are_means_with_a_band():
    axes = Figure().subplots()
    lines(axes, RUNS, "x", {"y": "it"})
    assert axes.lines[0].get_ydata().tolist() == [2.0, 2.0]
    assert axes.collections[0].get_paths()[0].vertices[:, 1].max() == 3.0


def test_a_figure_is_the_same_every_time(coin, tmp_path):
    finding = Finding(coin, (measured(coin, 1, False),))
    assert svg(finding) == svg(finding)
    assert svg(finding).startswith("<svg")
    draw(finding, tmp_path / "img/coin.svg")
    assert (tmp_path / "img/coin.svg").read_text().endswith(svg(finding))
