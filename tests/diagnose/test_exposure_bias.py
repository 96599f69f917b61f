import math

import pytest
import torch

from unspool.data.languages.pcfg import PCFG
from unspool.data.languages.true_model import TrueModel
from unspool.data.languages.zipf_markov import ZipfMarkov
from unspool.diagnose.exposure_bias import Exposure, ExposurePoint, exposure, true_exposure
from unspool.testing import TableModel, bigram


def test_by_hand():
    # It always says 1 after 0 or 1, and 2 after 2; the text is 0 | 2 2 2. After 0 and its own 1, the text's 2
    # has ¼; after the right 2 it has ¾.
    model = bigram([[0.0, 1.0, 0.0], [0.0, 0.75, 0.25], [0.0, 0.25, 0.75]])
    model = TableModel(lambda row: [0.0, 1.0, 0.0] if row == (0,) else model_rows[row[-1]])
    found = exposure(model, [((0,), (2, 2, 2))], [1], span=1)
    (point,) = found.points
    assert point.right == pytest.approx(-math.log(0.75), abs=1e-6)
    assert point.own == pytest.approx(-math.log(0.25), abs=1e-6)
    assert found.gap == pytest.approx(math.log(3), abs=1e-6)
    assert (point.texts, point.lost) == (1, None)


model_rows = {0: [0.0, 1.0, 0.0], 1: [0.0, 0.75, 0.25], 2: [0.0, 0.25, 0.75]}


def test_a_model_whose_words_do_not_matter_has_no_gap():
    model = TableModel(lambda row: [0.2, 0.3, 0.5])
    texts = [((0,), tuple(torch.randint(3, (12,)).tolist())) for _ in range(5)]
    found = exposure(model, texts, [1, 4], span=3)
    assert [it.gap for it in found.points] == pytest.approx([0.0, 0.0], abs=1e-6)
    assert found.gap == pytest.approx(0.0, abs=1e-6)


def test_the_mean_gap_counts_texts():
    points = (ExposurePoint(1, 1.0, 2.0, 3), ExposurePoint(2, 1.0, 6.0, 1))
    assert Exposure(points).gap == pytest.approx((3 * 1 + 1 * 5) / 4)


@pytest.mark.parametrize("language", [ZipfMarkov(), PCFG()])
def test_the_truth_has_no_exposure_bias(language):
    found = true_exposure(TrueModel(language), language, [1, 2, 4], texts=30)
    for point in found.points:
        assert point.right == pytest.approx(0.0, abs=1e-5)
        assert point.own == pytest.approx(0.0, abs=1e-5)
        assert point.lost == 0.0


def test_a_model_that_leaves_the_language_is_lost():
    language = PCFG()
    uniform = TableModel(lambda row: [1 / language.vocab_size] * language.vocab_size)
    found = true_exposure(uniform, language, [1], texts=200, seed=1)
    (point,) = found.points
    first = language.next([])
    # Of the words it draws first, those that the language cannot begin with; EOS ends a text, and is none.
    impossible = sum(1 for p in first if p == 0) - (1 if first[language.eos] == 0 else 0)
    assert point.lost == pytest.approx(impossible / language.vocab_size, abs=0.1)
    assert point.own > 0.5


@pytest.mark.parametrize(
    ("texts", "lengths", "span", "message"),
    [
        ([((0,), (1, 2))], [], 1, "lengths"),
        ([((0,), (1, 2))], [0], 1, "lengths"),
        ([((0,), (1, 2))], [1], 0, "span"),
        ([((0,), (1, 2))], [4], 1, "goes on for more than 4"),
    ],
)
def test_what_cannot_be_measured_is_refused(texts, lengths, span, message):
    with pytest.raises(ValueError, match=message):
        exposure(TableModel(lambda row: [0.2, 0.3, 0.5]), texts, lengths, span=span)
