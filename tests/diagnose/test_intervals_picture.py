from math import inf, nan

import pytest

from unspool.evaluate import Interval
from unspool.plots.charts import draw_intervals

PANELS = {
    "score": {
        "ours": Interval(1.5, 1.2, 1.7, 0.95),
        "a $very$ long name of a system that goes on": Interval(1, 1, 1, 0.95),
    },
    "perplexity": {"ours": Interval(inf, 3, inf, 0.95), "theirs": Interval(nan, nan, nan, 0.95)},
    "x": {"ours": Interval(2, 1, inf, 0.95)},
    "y": {"ours": Interval(2, 1, 3, 0.95)},
}


def test_it_is_drawn_and_the_same_every_time(tmp_path):
    for name in ("a.svg", "b.svg"):
        draw_intervals(PANELS, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_what_cannot_be_drawn_is_refused(tmp_path):
    with pytest.raises(TypeError, match="measure → system → interval"):
        draw_intervals({}, tmp_path / "a.svg")
    with pytest.raises(TypeError, match="cannot be drawn here"):
        draw_intervals({"x": {"y": 3}}, tmp_path / "a.svg")
    with pytest.raises(ValueError, match="a picture is written as"):
        draw_intervals(PANELS, tmp_path / "a.gif")
