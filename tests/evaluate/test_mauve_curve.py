import sys
from itertools import pairwise
from math import exp, log

import pytest
import torch

import unspool as us
from unspool.evaluate.mauve_curve import common_length, features, mauve, text_mauve
from unspool.interfaces import Abilities, Step
from unspool.testing import bigram


def clustered(counts):
    """Features in tight clusters, so many of each."""
    rows = [
        torch.eye(4)[c] + 0.001 * torch.sin(torch.arange(4.0) + i)
        for c, n in enumerate(counts)
        for i in range(n)
    ]
    return torch.stack(rows)


def area(p, q, scaling, points=25):
    """The area under the divergence frontier of two histograms, by the trapezoid rule both ways."""

    def kl(a, b):
        return sum(x * log(x / y) for x, y in zip(a, b, strict=True) if x)

    curve = []
    for k in range(points):
        mix = 1e-6 + k * (1 - 2e-6) / (points - 1)
        r = [mix * x + (1 - mix) * y for x, y in zip(p, q, strict=True)]
        curve.append((exp(-scaling * kl(q, r)), exp(-scaling * kl(p, r))))
    curve = [(0.0, 1.0), *curve, (1.0, 0.0)]

    def under(pairs):
        pairs = sorted(pairs)
        return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(pairs))

    return (under(curve) + under([(y, x) for x, y in curve])) / 2


def test_two_clusters_by_hand():
    # People: half and half; the decoder: nine of ten in the first.
    found = mauve(clustered([40, 40]), clustered([72, 8]), clusters=2, min_texts=1)
    assert found.value == pytest.approx(area([0.5, 0.5], [0.9, 0.1], 5.0), abs=1e-3)
    assert found.clusters == 2


def test_the_same_is_one_and_nothing_in_common_is_nearly_zero():
    same = mauve(clustered([40, 40]), clustered([40, 40]), clusters=2, min_texts=1)
    nearly = mauve(clustered([400, 400]), clustered([401, 399]), clusters=2)
    other = mauve(clustered([80, 0]), clustered([0, 80]), clusters=2, min_texts=1)
    assert (same.value, same.smoothed) == (1, 1)
    assert 0.99 < nearly.value < 1
    assert other.value < 0.01
    assert other.value < other.smoothed < 1


def test_a_cluster_for_every_ten_texts():
    dice = torch.Generator().manual_seed(0)
    a, b = (torch.randn(n, 5, generator=dice) for n in (200, 100))
    assert mauve(a, b, min_texts=100).clusters == 10


class Counting(Abilities):
    """A model whose hidden state is the sum and the number of the tokens it has read."""

    vocab_size, context, tokenizer = 9, 4, None

    def start(self, prompts):
        hidden_ND = torch.tensor([[float(sum(row)), float(len(row))] for row in prompts])
        return Step(torch.zeros(len(prompts), 2), hidden_ND), None

    def step(self, state, tokens_N):
        raise AssertionError("one look is enough")


def test_features_are_in_the_order_of_the_texts():
    rows = [[1, 2, 3], [5], [7, 7], [1]]
    for batch in (1, 3, 8):
        assert features(Counting(), rows, batch=batch).tolist() == [[6, 3], [5, 1], [14, 2], [1, 1]]


def test_features_take_texts_as_they_are():
    model = us.load("bible")
    text = "In the beginning"
    torch.testing.assert_close(features(model, [text]), features(model, [model.tokenizer.encode(text)]))
    for texts, message in (
        (text, "must be a list of texts"),
        ([], "texts is empty"),
        (None, "must be a list of texts"),
        ([[1], [model.vocab_size]], "text 1 holds token .* outside the model's vocabulary"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            features(model, texts)
    with pytest.raises(ValueError, match="text 0 has 5 tokens but the context is 4"):
        features(Counting(), [[1] * 5])
    with pytest.raises(ValueError, match="an encoder–decoder"):
        features(us.load("dates"), ["1921"])
    with pytest.raises(ValueError, match="no tokenizer"):
        features(Counting(), ["a"])


def test_few_texts_raise():
    rng = torch.Generator().manual_seed(0)
    few, many = (torch.randn(count, 5, generator=rng) for count in (20, 300))
    with pytest.raises(ValueError, match="MAUVE needs at least 300 generated texts, found 20"):
        mauve(many, few)
    assert mauve(many, many).texts == (300, 300)


def test_the_value_is_the_mean_over_clusterings_and_has_their_range():
    rng = torch.Generator().manual_seed(1)
    a, b = (torch.randn(300, 8, generator=rng) + shift for shift in (0.0, 0.3))
    found = mauve(a, b, clusterings=3)
    each = [mauve(a, b, clusterings=1, seed=seed).value for seed in (25, 26, 27)]
    assert list(found.by_clustering) == pytest.approx(each)
    assert found.value == pytest.approx(sum(each) / 3)
    assert len(set(found.by_clustering)) > 1
    assert "mean and range over 3 clusterings" in str(found)


def test_texts_are_cut_to_one_length():
    human = [[7 + n % 2] * 4 for n in range(20)]
    generated = [[7 + n % 2] * (3 if n else 1) for n in range(20)]
    assert common_length(Counting(), human, generated) == 3
    found = text_mauve(Counting(), human, generated, min_texts=10)
    assert (found.length, found.texts) == (3, (20, 19))
    with pytest.raises(ValueError, match="generated texts of at least 3 tokens, found 19"):
        text_mauve(Counting(), human, generated, min_texts=20)


def test_faiss_says_nothing(capfd):
    dice = torch.Generator().manual_seed(0)
    mauve(*(torch.randn(60, 5, generator=dice) for _ in range(2)), min_texts=60)
    assert capfd.readouterr() == ("", "")


def test_incomparable_arguments_raise():
    with pytest.raises(ValueError, match="text 1 is empty"):
        features(Counting(), [[1], []])
    with pytest.raises(ValueError, match="hidden states"):
        features(bigram([[0.5, 0.5]] * 2), [[0]])
    with pytest.raises(ValueError, match="same width"):
        mauve(torch.zeros(9, 2), torch.zeros(9, 3))
    with pytest.raises(ValueError, match=r"clusters is 10, but must be 2 … 9"):
        mauve(torch.zeros(9, 2), torch.zeros(19, 2), clusters=10, min_texts=9)


def test_a_missing_package_raises_with_the_install_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "mauve", None)
    with pytest.raises(ImportError, match=r"unspool\[mauve\]"):
        mauve(torch.zeros(9, 2), torch.zeros(9, 2), min_texts=9)
