from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from unspool.data.batch import ragged_from_lists
from unspool.data.examples import Classes, LabelledExamples, Tags, label_ids, sorted_labels
from unspool.tokenization import train_characters, train_words

CODEC = train_words(["a b c"])  # a = 4, b = 5, c = 6
CLASSES, TAGS = Classes(("bad", "good")), Tags(("N", "V"))


def columns(form: Classes | Tags, rows: list[tuple[str, ...]]) -> LabelledExamples:
    encoded = form.encode(rows, CODEC)
    found = form.examples(
        [ragged_from_lists([row[column] for row in encoded]) for column in range(form.columns)]
    )
    assert isinstance(found, LabelledExamples)
    return found


def test_a_classifier_has_one_target_a_text_by_hand() -> None:
    examples = columns(CLASSES, [("good", "a b"), (" bad ", "c")])
    batch = examples.batch(np.array([0, 1]))
    assert batch.inputs_NT.tolist() == [[4, 5], [6, 0]]
    assert batch.lengths_N.tolist() == [2, 1]
    assert (batch.targets_NU.tolist(), batch.weights_NU.tolist()) == ([[1], [0]], [[1], [1]])
    assert CLASSES.texts(("good", "a b")) == ("a b",)


def test_a_tagger_has_one_target_a_word_by_hand() -> None:
    examples = columns(TAGS, [("a b", "V N"), ("c", "N")])
    batch = examples.batch(np.array([1, 0]))
    assert batch.inputs_NT.tolist() == [[6, 0], [4, 5]]
    assert (batch.targets_NU.tolist(), batch.weights_NU.tolist()) == ([[0, 0], [1, 0]], [[1, 0], [1, 1]])
    assert TAGS.texts(("a b", "V N")) == ("a b",)


def test_a_text_is_cut_with_its_tags() -> None:
    examples = replace(columns(TAGS, [("a b c", "V N N"), ("c", "N")]), limit=2)
    assert (len(examples), examples.sizes_NK.tolist()) == (2, [[2], [1]])
    batch = examples.batch(np.array([0]))
    assert (batch.inputs_NT.tolist(), batch.targets_NU.tolist()) == ([[4, 5]], [[1, 0]])


def test_a_label_that_training_did_not_have_is_said() -> None:
    with pytest.raises(ValueError, match=r"'goood' is not a known label .* did you mean 'good'"):
        label_ids(["goood"], CLASSES.labels)


def test_the_first_token_of_a_word_has_its_tag_by_hand() -> None:
    codec = train_characters(["ab c"])  # " " = 4, a = 5, b = 6, c = 7
    ((ids, targets),) = TAGS.encode([("ab c", "N V")], codec)
    assert (ids, targets) == ([5, 6, 4, 7], [0, 2, 2, 1])
    batch = TAGS.examples([ragged_from_lists([ids, [7]]), ragged_from_lists([targets, [0]])]).batch(
        np.array([1, 0])
    )
    assert batch.inputs_NT.tolist() == [[7, 0, 0, 0], [5, 6, 4, 7]]
    assert batch.targets_NU.tolist() == [[0, 0, 0, 0], [0, 0, 0, 1]]
    assert batch.weights_NU.tolist() == [[1, 0, 0, 0], [1, 0, 0, 1]]
    assert batch.weight == 3


def test_words_that_share_a_token_cannot_be_tagged() -> None:
    # A file separator is white space to Python, and not to the tokenizer.
    with pytest.raises(ValueError, match="has 3 tags, but tokens for 2 words"):
        TAGS.encode([("a b\x1cc", "N V N")], CODEC)


def test_labels_are_sorted_and_leave_a_choice() -> None:
    assert sorted_labels(["b", "a", "b"]) == ("a", "b")
    with pytest.raises(ValueError, match="one label, 'a'"):
        sorted_labels(["a", "a"])
    with pytest.raises(ValueError, match="no label"):
        sorted_labels([])
