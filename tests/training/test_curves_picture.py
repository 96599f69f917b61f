import sys

from unspool.training.curves import Curves, draw_curves


def test_curves_are_drawn(tmp_path):
    curves = Curves(tmp_path / "curves.jsonl")
    for update in (1, 2, 3):
        curves.add({"update": update, "nll": 3.0 / update, "lr": 0.1})
    curves.add({"update": 3, "valid": 1.5})
    path = draw_curves(tmp_path)
    assert path.read_text(encoding="utf-8").startswith("<?xml")
    assert {it.name for it in tmp_path.iterdir()} == {"curves.jsonl", "curves.svg"}


def test_a_run_that_was_only_validated(tmp_path):
    Curves(tmp_path / "curves.jsonl").add({"update": 3, "valid": 1.5})
    assert draw_curves(tmp_path).is_file()


def test_without_likelihood_what_is_minimised_is_drawn(tmp_path):
    curves = Curves(tmp_path / "curves.jsonl")
    for update in (1, 2):
        curves.add({"update": update, "loss": 3.0 / update, "reward": 0.5, "lr": 0.1})
    assert "what is minimised" in draw_curves(tmp_path).read_text(encoding="utf-8")


def test_no_point_is_no_picture(tmp_path):
    assert draw_curves(tmp_path) is None


def test_without_matplotlib_there_is_none(tmp_path, monkeypatch):
    Curves(tmp_path / "curves.jsonl").add({"update": 1, "nll": 1.0, "lr": 0.1})
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert draw_curves(tmp_path) is None
