import pytest

from unspool.evaluate import calibration
from unspool.plots.charts import draw_reliability


def test_it_is_drawn_and_the_same_every_time(tmp_path):
    found = calibration([0.1, 0.5, 0.9, 1.0], [False, True, True, True], bins=4)
    for name in ("a.svg", "b.svg"):
        draw_reliability(found, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_only_a_calibration_can_be_drawn(tmp_path):
    with pytest.raises(TypeError, match="but a Calibration can"):
        draw_reliability(0.3, tmp_path / "a.svg")
