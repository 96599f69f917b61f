from math import log

import pytest

import unspool as us
from unspool.diagnose.text_loops import loop_rates
from unspool.plots import draw_loops
from unspool.testing import TableModel, bigram

CYCLE = bigram([[0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.8, 0.1, 0.1]])


def test_by_hand():
    found = loop_rates(CYCLE, [[0], [1]], {"greedy": us.Greedy(), "pure": us.Sample()}, max_new_tokens=12)
    greedy, pure = found.decoders
    assert (greedy.texts, greedy.periods, greedy.rate) == (2, (3, 3), 1)
    assert greedy.rep_4 == pytest.approx(1 - 3 / 9)
    assert greedy.turns == pytest.approx([log(0.8)] * 4)
    assert pure.rate == 0
    assert found.verdict == (
        "2 of 2 texts (100%) by greedy end in a loop within 12 tokens, 0 of 2 texts (0%) by pure; log p of a token "
        "changes from -0.22 in the first repetition to -0.22 in repetition 4: loops do not reinforce themselves"
    )


def test_a_loop_that_feeds_itself():
    # the more often token 1 was said, the surer it is
    def table(row):
        sure = 1 - 0.4 / len(row)
        return [1 - sure, sure]

    found = loop_rates(TableModel(table), [[0]], {"greedy": us.Greedy()}, max_new_tokens=30)
    assert found.decoders[0].turns == tuple(sorted(found.decoders[0].turns))
    assert found.verdict.endswith("in repetition 8: loops reinforce themselves")


def test_the_verdict_without_loops(tmp_path):
    found = loop_rates(CYCLE, [[0]], {"pure": us.Sample()}, max_new_tokens=5, seed=3)
    assert found.verdict == "no text ends in a loop within 5 tokens, with any decoder"
    draw_loops(found, tmp_path / "p.svg")


def test_prompts_that_are_alike_are_tried_independently():
    # Token 1 comes next in half of all texts, and for ever; the others are as random as can be.
    half = TableModel(lambda row: [0.0, 1.0, *[0.0] * 98] if row[-1] == 1 else [0.0, 0.0, *[1 / 98] * 98])
    model = TableModel(lambda row: [0.0, 0.5, *[0.5 / 98] * 98] if len(row) == 1 else half.table(row))
    (pure,) = loop_rates(model, [[0]] * 60, {"pure": us.Sample()}, max_new_tokens=30).decoders
    assert 0.25 < pure.rate < 0.75


def test_it_is_drawn(tmp_path):
    found = loop_rates(CYCLE, [[0]], {"Greedy()": us.Greedy(), "x" * 60: us.Sample()}, max_new_tokens=12)
    draw_loops(found, tmp_path / "p.svg")
    assert (tmp_path / "p.svg").stat().st_size > 1000


@pytest.mark.parametrize(
    ("prompts", "decoders", "said"),
    [([], {"g": us.Greedy()}, "at least one"), ([[0]], {}, "a dict from names to decoders")],
)
def test_empty_arguments_raise(prompts, decoders, said):
    with pytest.raises(ValueError, match=said):
        loop_rates(CYCLE, prompts, decoders)


def test_texts_that_nearly_repeat_are_counted_as_approximate_loops():
    def table(row):  # 0 1 2 3 …, in which every tenth token is another one each time
        at = len(row)
        token = 4 + at // 10 if at % 10 == 3 else at % 4
        return [0.999 if it == token else 0.001 / 63 for it in range(64)]

    found = loop_rates(TableModel(table), [[0]], {"greedy": us.Greedy()}, max_new_tokens=96)
    (greedy,) = found.decoders
    assert (greedy.periods, greedy.approximate) == ((), 1)
