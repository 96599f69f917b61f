import re
from math import inf, log, nan

import pytest
import torch

from unspool.diagnose import feasible, spectrum
from unspool.diagnose.dependency_agreement import LabelAgreement
from unspool.diagnose.ranked_tokens import RankedTokens
from unspool.diagnose.word_senses import Senses, WordSenses
from unspool.evaluate import Interval, calibration
from unspool.heads.softmax import Softmax
from unspool.plots import (
    draw_heads,
    draw_intervals,
    draw_ranks,
    draw_reliability,
    draw_senses,
    draw_simplex,
    draw_spectrum,
)

BLUE, GREEN, GREY, ORANGE = "#2471a3", "#1e8449", "#8a8a8a", "#e67e22"

PANELS = {
    "score": {
        "ours": Interval(1.5, 1.2, 1.7, 0.95),
        "a $very$ long name of a system that goes on": Interval(1, 1, 1, 0.95),
    },
    "perplexity": {"ours": Interval(inf, 3, inf, 0.95), "theirs": Interval(nan, nan, nan, 0.95)},
    "x": {"ours": Interval(2, 1, inf, 0.95)},
    "y": {"ours": Interval(2, 1, 3, 0.95)},
}


def test_intervals_give_the_same_file_every_time(tmp_path):
    for name in ("a.svg", "b.svg"):
        draw_intervals(PANELS, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_draw_intervals_raises_for_invalid_panels(tmp_path):
    with pytest.raises(TypeError, match="measure → system → interval"):
        draw_intervals({}, tmp_path / "a.svg")
    with pytest.raises(TypeError, match="expected a Interval"):
        draw_intervals({"x": {"y": 3}}, tmp_path / "a.svg")
    with pytest.raises(ValueError, match="unknown figure format"):
        draw_intervals(PANELS, tmp_path / "a.gif")


def word_senses(number, *thetas):
    return WordSenses(number, thetas, (1.0,) * len(thetas), None, None)


def count_dots(path):
    """Each dot is one use of a marker."""
    return len(re.findall(r"<use [^>]*fill: " + BLUE, path.read_text()))


def test_each_sense_is_a_dot(tmp_path):
    few = Senses((word_senses(0, 0.5, -0.5), word_senses(1, 0.0)))
    more = Senses((word_senses(0, 0.5, -0.5, 0.5, 0.5), word_senses(1, 0.0)))
    for name, result in (("few.svg", few), ("more.svg", more)):
        draw_senses(result, tmp_path / name)
    assert count_dots(tmp_path / "few.svg") == 3
    assert count_dots(tmp_path / "more.svg") == 5


def test_each_use_of_a_sense_is_a_bar(tmp_path):
    result = Senses((word_senses(0, 0.5, -0.5), word_senses(1, 0.0)))
    bars = lambda path: len(re.findall(r"<path [^>]*fill: " + BLUE, path.read_text()))  # noqa: E731
    draw_senses(result, tmp_path / "plain.svg")
    draw_senses(result, tmp_path / "used.svg", [("the $1 [bank]", 0.7), ("a 川\nriver [bank]", 0.3)])
    assert bars(tmp_path / "used.svg") == bars(tmp_path / "plain.svg") + 2


def test_spectrum_shows_the_limit_if_there_is_an_output_matrix(tmp_path):
    torch.manual_seed(0)
    head = Softmax(3, 20)
    with torch.no_grad():
        logp = head(torch.randn(12, 3))
    for name, matrix in (("bound.svg", head.weight), ("free.svg", None)):
        draw_spectrum(spectrum(logp, matrix), tmp_path / name)
        drawn = (tmp_path / name).read_text()
        assert (ORANGE in drawn, GREY in drawn) == (matrix is not None,) * 2


def test_spectrum_draws_singular_values_of_zero(tmp_path):
    found = spectrum(torch.tensor([[-3.0, 0.0], [-3.0, 0.0]]))
    assert found.singular_values[-1] < 1e-12
    draw_spectrum(found, tmp_path / "zero.png")
    assert (tmp_path / "zero.png").stat().st_size > 0


AGREEMENTS = [LabelAgreement("obj", 30, 1, 2, 0.7, 1, 0.4, ((0.1,), (0.7,)))]


def test_heads_give_the_same_file_every_time(tmp_path):
    for name in ("one.svg", "two.svg"):
        draw_heads(AGREEMENTS, tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert "#2471a3" in (tmp_path / "one.svg").read_text()


def test_draw_heads_raises_for_another_type(tmp_path):
    with pytest.raises(TypeError, match="LabelAgreement"):
        draw_heads(["obj"], tmp_path / "x.svg")


def test_reliability_gives_the_same_file_every_time(tmp_path):
    found = calibration([0.1, 0.5, 0.9, 1.0], [False, True, True, True], bins=4)
    for name in ("a.svg", "b.svg"):
        draw_reliability(found, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_draw_reliability_raises_for_another_type(tmp_path):
    with pytest.raises(TypeError, match="expected a Calibration"):
        draw_reliability(0.3, tmp_path / "a.svg")


def test_ranks_highlight_exceptions_and_ignore_markup(tmp_path):
    plain = RankedTokens("a $x$\nb", ("$a$", "<b>", "中"), (0.5, 0.3, 0.0), {"rule": (True, True, False)})
    exception = RankedTokens("p" * 200, ("a", "b", "c"), (0.5, 0.3, 0.2), {"rule": (True, False, True)})
    for result, name in ((plain, "plain.svg"), (exception, "exception.svg")):
        draw_ranks(result, tmp_path / name)
    assert ORANGE not in (tmp_path / "plain.svg").read_text()
    assert ORANGE in (tmp_path / "exception.svg").read_text()


def test_the_simplex_marks_a_feasible_distribution_without_a_token(tmp_path):
    draw_simplex(feasible(), tmp_path / "paper.svg")
    draw_simplex(feasible(delta=log(1.01)), tmp_path / "certain.svg")
    assert GREEN in (tmp_path / "paper.svg").read_text()
    assert GREEN not in (tmp_path / "certain.svg").read_text()
