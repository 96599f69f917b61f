import pytest

from unspool.diagnose.dependency_agreement import LabelAgreement
from unspool.plots.charts import draw_heads

FOUND = [LabelAgreement("obj", 30, 1, 2, 0.7, 1, 0.4, ((0.1,), (0.7,)))]


def test_it_is_drawn_and_the_same_every_time(tmp_path):
    for name in ("one.svg", "two.svg"):
        draw_heads(FOUND, tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert "#2471a3" in (tmp_path / "one.svg").read_text()


def test_nothing_else_is_drawn(tmp_path):
    with pytest.raises(TypeError, match="LabelAgreement"):
        draw_heads(["obj"], tmp_path / "x.svg")
