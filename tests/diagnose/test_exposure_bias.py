import math
from itertools import pairwise
from random import Random

import pytest
import torch

from unspool.data.known_languages import Agreement, FullSupport
from unspool.data.known_languages.known_language import TrueModel
from unspool.data.known_languages.zipf_markov import ZipfMarkov
from unspool.diagnose.exposure_bias import Exposure, ExposurePoint, exposure, show_nats, true_exposure
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


@pytest.mark.parametrize(
    ("nats", "shown"), [(-0.00004, "0.0000"), (-0.00006, "-0.0001"), (0.12345, "0.1235")]
)
def test_nats_that_round_to_zero_have_no_sign(nats, shown):
    assert show_nats(nats) == shown


def test_the_mean_gap_counts_texts():
    points = (ExposurePoint(1, 1.0, 2.0, 3), ExposurePoint(2, 1.0, 6.0, 1))
    assert Exposure(points).gap == pytest.approx((3 * 1 + 1 * 5) / 4)


@pytest.mark.parametrize("language", [ZipfMarkov(), Agreement(), FullSupport(Agreement(), 0.05)])
def test_the_truth_has_no_exposure_bias(language):
    found = true_exposure(TrueModel(language), language, [1, 2, 4], texts=30)
    for point in found.points:
        assert point.right == pytest.approx(0.0, abs=1e-5)
        assert point.own == pytest.approx(0.0, abs=1e-5)
        assert point.excess == pytest.approx(0.0, abs=1e-6)
    assert found.interval.low <= 0 <= found.interval.high
    assert found.interval.high - found.interval.low < 1e-5
    if not isinstance(language, FullSupport):
        assert [it.lost for it in found.points] == [0.0] * 3


def planted(language, error, after_error):
    """The truth with probability 1 − error, else any word; after an impossible word, what `after_error` says."""
    noisy = FullSupport(language, error)

    def table(row):
        state = language.start()
        for token in row[1:]:
            if token == language.eos:
                break
            if not language.probability(state, token) > 0 and after_error == "babble":
                return noisy.noise.tolist()
            state = noisy.after(state, token)
        return noisy.probabilities(state).tolist()

    return TableModel(table, tokenizer=language.new_tokenizer())


def test_a_model_that_errs_and_then_babbles_has_a_large_gap():
    language = Agreement(nouns=4, verbs=4, fillers=4)
    found = true_exposure(planted(language, 0.05, "babble"), language, [2, 6], texts=300)
    early, late = found.points
    assert late.gap > 0.3
    assert late.gap > early.gap
    assert found.interval.low > 0.1
    # Where its words are still possible, it is as good as after right words: all of the gap is in lost texts.
    assert late.possible == pytest.approx(late.right, abs=0.05)
    assert "does worse after its own tokens" in found.verdict


def test_a_model_that_errs_and_recovers_has_no_gap():
    language = Agreement(nouns=4, verbs=4, fillers=4)
    found = true_exposure(planted(language, 0.05, "recover"), language, [2, 6], texts=300)
    assert found.points[-1].lost > 0.05
    assert abs(found.gap) < 0.01


def chain(size=12, seed=0):
    """A random bigram with full support, whose texts depend on their past."""
    rng = Random(seed)
    weights = [[rng.random() ** 6 + 0.01 for _ in range(size)] for _ in range(size)]
    return bigram([[it / sum(row) for it in row] for row in weights])


def texts_of(model, count, length, seed):
    rng = Random(seed)
    texts = []
    for _ in range(count):
        row = [rng.randrange(model.vocab_size)]
        for _ in range(length):
            (token,) = rng.choices(range(model.vocab_size), model.table(tuple(row)))
            row.append(token)
        texts.append((tuple(row[:1]), tuple(row[1:])))
    return texts


def test_a_perfect_model_has_no_excess_on_references():
    model = chain()
    found = exposure(model, texts_of(model, 400, 12, 1), [1, 4, 8], span=2)
    assert found.points[0].gap > 0.3  # the reference answers another prefix
    assert found.interval.low <= 0 <= found.interval.high
    assert abs(found.excess) < 0.1
    assert "a perfect model could show the same" in found.verdict


@pytest.mark.parametrize("with_eos", [True, False])
def test_a_perfect_model_has_no_excess_on_sentences_that_end(with_eos):
    language = FullSupport(ZipfMarkov(word_count=20, order=1, branching=6, stop=0.15), 0.05)
    rng = Random(2)
    ends = (language.eos,) if with_eos else ()
    texts = [((language.bos,), (*language.sample(rng), *ends)) for _ in range(400)]
    found = exposure(TrueModel(language), texts, [1, 2, 4], span=3)
    assert found.gap > 0.1
    assert found.interval.low <= 0 <= found.interval.high


def test_a_model_that_errs_and_then_babbles_has_an_excess_on_references():
    # Truth: a cycle 0 1 2 … with rare slips. The model slips more often, and babbles after a slip.
    size = 8
    truth = bigram([[0.93 if b == (a + 1) % size else 0.01 for b in range(size)] for a in range(size)])

    def table(row):
        if any(b != (a + 1) % size for a, b in pairwise(row)):
            return [1 / size] * size
        return [0.8 + 0.2 / size if b == (row[-1] + 1) % size else 0.2 / size for b in range(size)]

    found = exposure(TableModel(table), texts_of(truth, 400, 12, 3), [1, 4, 8], span=2)
    assert found.interval.low > 0.1


def test_a_model_that_leaves_the_language_is_lost():
    language = Agreement()
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
        ([((0,), (1, 2))], [4], 1, "has more than 4"),
    ],
)
def test_invalid_arguments_raise(texts, lengths, span, message):
    with pytest.raises(ValueError, match=message):
        exposure(TableModel(lambda row: [0.2, 0.3, 0.5]), texts, lengths, span=span)
