from math import log

import pytest

import unspool as us
from unspool.diagnose.beam_search_curse import beam_widths
from unspool.plots import draw_widths
from unspool.testing import TableModel


class Ends:
    """A tokenizer that has nothing but an end: token 0."""

    eos_ids = frozenset({0})
    bos_id = None
    vocab_size = 4

    def encode(self, text):
        raise NotImplementedError

    def decode(self, ids):
        return "".join("abc"[it - 1] for it in ids if it)

    def detokenizer(self, stop=(), after=None):
        return None


def table(row):
    """Right is 1 2 3 and the end; to end at once is less probable than 1, but than no whole text."""
    new = row[1:]
    if not new:
        return [0.3, 0.7, 0.0, 0.0]
    if new[-1] == 0:
        return [1.0, 0.0, 0.0, 0.0]
    step = [0.1, 0.1, 0.1, 0.1]
    step[(new[-1] + 1) % 4] = 0.7
    return step


MODEL = TableModel(table, tokenizer=None)


@pytest.fixture
def model(monkeypatch):
    text = Ends()
    monkeypatch.setattr(text, "detokenizer", lambda stop=(), after=None: Watch(), raising=False)
    return TableModel(table, tokenizer=text)


class Watch:
    text, finish_reason = "", None

    def push(self, token):
        return self

    def close(self):
        return ""


def test_the_curse_by_hand(model):
    found = beam_widths(model, [([1], [1, 2, 3, 0])] * 2, [4, 1])
    narrow, wide = found.points
    assert (narrow.width, wide.width) == (1, 4)
    assert narrow.logp == pytest.approx(4 * log(0.7))  # 0.24, and the empty text has 0.3
    assert wide.logp == pytest.approx(log(0.3))
    assert (narrow.length, narrow.ratio, narrow.quality, narrow.empty, narrow.ended) == (3, 1, 1, 0, 1)
    assert (wide.length, wide.ratio, wide.quality, wide.empty, wide.ended) == (0, 0, 0, 1, 1)
    assert found.cursed
    assert found.best == narrow
    assert found.verdict.endswith("best at width 1 (1.000): beam search curse")


def test_a_length_penalty_lifts_it(model):
    beam = us.Beam(1, length_penalty=us.Length(1.0))
    found = beam_widths(model, [([1], [1, 2, 3, 0])], [1, 4], beam=beam)
    assert found.points[-1].quality == 1
    assert found.verdict.endswith("no beam search curse up to this width")


def test_texts_without_an_end_say_nothing_of_length(tmp_path):
    found = beam_widths(TableModel(lambda row: [0.5, 0.5]), [([0], [1, 1])], [1, 2])
    assert "the lengths mean nothing" in found.verdict
    draw_widths(found, tmp_path / "p.svg")
    assert (tmp_path / "p.svg").stat().st_size > 1000


@pytest.mark.parametrize(
    ("texts", "widths", "said"),
    [
        ([([1], [1])], [], "widths is "),
        ([([1], [1])], [0], "whole number ≥ 1"),
        ([([1], [1])], [10**6], "from 1 to 4096"),
        ([([1], [])], [1], "all references are empty"),
    ],
)
def test_invalid_widths_and_texts_raise(texts, widths, said):
    with pytest.raises(ValueError, match=said):
        beam_widths(MODEL, texts, widths)
