import re

from unspool.diagnose.word_senses import Senses, WordSenses
from unspool.plots.charts import draw_senses

BLUE = "#2471a3"


def word(number, *thetas):
    return WordSenses(number, thetas, (1.0,) * len(thetas), None, None)


def points(path):
    """How many dots there are: each is one use of a marker."""
    return len(re.findall(r"<use [^>]*fill: " + BLUE, path.read_text()))


def test_every_sense_is_a_dot(tmp_path):
    few = Senses((word(0, 0.5, -0.5), word(1, 0.0)))
    more = Senses((word(0, 0.5, -0.5, 0.5, 0.5), word(1, 0.0)))
    for name, found in (("few.svg", few), ("more.svg", more)):
        draw_senses(found, tmp_path / name)
    assert points(tmp_path / "few.svg") == 3
    assert points(tmp_path / "more.svg") == 5


def test_the_use_of_senses_is_a_bar_each(tmp_path):
    found = Senses((word(0, 0.5, -0.5), word(1, 0.0)))
    bars = lambda path: len(re.findall(r"<path [^>]*fill: " + BLUE, path.read_text()))  # noqa: E731
    draw_senses(found, tmp_path / "plain.svg")
    draw_senses(found, tmp_path / "used.svg", [("the $1 [bank]", 0.7), ("a 川\nriver [bank]", 0.3)])
    assert bars(tmp_path / "used.svg") == bars(tmp_path / "plain.svg") + 2
