import pytest
import torch

from unspool.diagnose.softmax_bottleneck import spectrum
from unspool.heads.softmax import Softmax
from unspool.plots.charts import draw_spectrum

ORANGE, GREY = "#e67e22", "#8a8a8a"


def test_the_limit_and_the_matrix_are_drawn_where_there_is_one(tmp_path):
    torch.manual_seed(0)
    head = Softmax(3, 20)
    with torch.no_grad():
        logp = head(torch.randn(12, 3))
    for name, matrix in (("bound.svg", head.weight), ("free.svg", None)):
        draw_spectrum(spectrum(logp, matrix), tmp_path / name)
        drawn = (tmp_path / name).read_text()
        assert (ORANGE in drawn, GREY in drawn) == (matrix is not None,) * 2


def test_values_of_zero_have_a_place_on_the_axis(tmp_path):
    found = spectrum(torch.tensor([[-3.0, 0.0], [-3.0, 0.0]]))
    assert found.singular_values[-1] < 1e-12
    draw_spectrum(found, tmp_path / "zero.png")
    assert (tmp_path / "zero.png").stat().st_size > 0


def test_the_same_numbers_give_the_same_file(tmp_path):
    found = spectrum(torch.randn(6, 5))
    for name in ("a.svg", "b.svg"):
        draw_spectrum(found, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_another_kind_of_file_is_refused(tmp_path):
    with pytest.raises(ValueError, match="a picture is written as"):
        draw_spectrum(spectrum(torch.randn(6, 5)), tmp_path / "a.txt")
