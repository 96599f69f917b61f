import sys
from math import exp, log

import pytest

from unspool.evaluate.reference_overlap import overlap


def test_a_sentence_by_hand():
    # 5 words, one wrong at the end: precisions 4/5, 3/4, 2/3, 1/2; as long as its reference
    found = overlap(["the cat sat down here"], ["the cat sat down there"])
    assert found.bleu == pytest.approx(100 * exp((log(4 / 5) + log(3 / 4) + log(2 / 3) + log(1 / 2)) / 4))
    assert found.ter == pytest.approx(100 / 5)


def test_equal_texts_are_perfect_and_others_are_not():
    texts = ["a small house by the sea", "nobody knows the hour of the day"]
    same, swapped = overlap(texts, texts), overlap(texts, texts[::-1])
    assert (same.bleu, same.chrf, same.ter) == (pytest.approx(100), pytest.approx(100), 0)
    assert swapped.bleu < 20
    assert swapped.chrf < 50
    assert swapped.ter > 50
    assert all("version" in signature for signature in same.signatures.values())


@pytest.mark.parametrize(
    ("outputs", "references", "message"),
    [(["a"], ["a", "b"], "1 outputs but 2 references"), ([], [], "at least one")],
)
def test_texts_that_cannot_be_scored_raise(outputs, references, message):
    with pytest.raises(ValueError, match=message):
        overlap(outputs, references)


@pytest.mark.parametrize(
    ("outputs", "references", "message"),
    [
        ("abc", "abd", r"outputs is 'abc', but must be a list of texts"),
        (["abc"], "abd", "references is 'abd', but must be a list"),
        (None, ["a"], "outputs is None"),
        (["a", 3], ["a", "b"], "outputs 1 is 3, but must be a string"),
    ],
)
def test_letters_are_not_taken_for_texts(outputs, references, message):
    with pytest.raises(TypeError, match=message):
        overlap(outputs, references)


def test_a_missing_sacrebleu_raises_with_the_install_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    with pytest.raises(ImportError, match=r"pip install 'unspool\[evaluate\]'"):
        overlap(["a"], ["a"])
