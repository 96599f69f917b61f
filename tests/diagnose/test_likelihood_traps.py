from math import log

import pytest

from unspool.diagnose.likelihood_traps import likelihood_trap
from unspool.plots import draw_trap
from unspool.testing import TableModel, bigram

FORWARD = bigram([[0.1, 0.7, 0.1, 0.1], [0.1, 0.1, 0.7, 0.1], [0.1, 0.1, 0.1, 0.7], [0.7, 0.1, 0.1, 0.1]])


def test_by_hand():
    # after 0: 1 2 3 0 is what people wrote; "1 2" again and again has one wrong step of every two after the first
    found = likelihood_trap(FORWARD, [([0], [1, 2, 3, 0])], phrase=2)
    assert found.by_text["human"] == pytest.approx([log(0.7)])
    assert found.by_text["repeated"] == pytest.approx([(3 * log(0.7) + log(0.1)) / 4])
    assert found.by_text["greedy"] == pytest.approx([log(0.7)])
    assert not found.trapped
    assert "no likelihood trap" in found.verdict


def test_a_model_that_likes_to_repeat_is_trapped():
    def table(row):
        # what came two tokens ago comes again; else one step forward; hardly anything else
        p = [0.02] * 8
        p[(row[-1] + 1) % 8] += 0.24
        p[row[-2] if len(row) > 1 else 0] += 0.6
        return p

    texts = [([at], [(at + n) % 8 for n in range(1, 13)]) for at in range(8)]
    found = likelihood_trap(TableModel(table), texts, phrase=2)
    assert found.trapped
    assert found.verdict.endswith("repetition is more probable than human text")


def test_a_model_that_knows_nothing():
    even = bigram([[0.25] * 4] * 4)
    found = likelihood_trap(even, [([0], [1, 2, 3, 0, 1, 2])], phrase=2)
    assert "no verdict" in found.verdict


def test_the_figure_is_drawn_and_seeded(tmp_path):
    texts = [([0], [1, 2, 3, 0, 1, 2])] * 4
    one, two = (likelihood_trap(FORWARD, texts, phrase=2, seed=5) for _ in range(2))
    assert one == two
    draw_trap(one, tmp_path / "p.svg")
    assert (tmp_path / "p.svg").stat().st_size > 1000


def test_short_texts_raise():
    with pytest.raises(ValueError, match="more than 8 tokens"):
        likelihood_trap(FORWARD, [([0], [1, 2])])
