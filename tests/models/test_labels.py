import pytest
import torch
from torch import nn

from unspool.models.labels import Labelled, check_labels, inputs

EMBED = nn.Embedding(5, 2)


class Text:
    bos_id = 1

    @staticmethod
    def encode(text):
        return [1, *map(int, text)]


def test_the_most_probable_label():
    best = Labelled.best(torch.tensor([0.2, 0.7, 0.1]).log(), ("a", "b", "c"))
    assert best.label == "b"
    assert best.p == pytest.approx(0.7)


def test_strings_and_token_ids_become_one_batch():
    tokens, lengths = inputs(["23", [4, 4, 4]], Text, EMBED)
    assert tokens.tolist() == [[2, 3, 0], [4, 4, 4]]
    assert lengths.tolist() == [2, 3]


@pytest.mark.parametrize(
    ("texts", "text", "message"),
    [
        ([], Text, "give a list of at least one text"),
        ("23", Text, "give a list of at least one text"),
        (["23"], None, "text 0 is a string, but this model has no tokenizer"),
        ([[1], []], None, "text 1 is empty"),
        ([[1, 5]], None, "text 0 holds a token outside the model's vocabulary 0…4"),
    ],
)
def test_texts_that_cannot_be_read_are_refused(texts, text, message):
    with pytest.raises(ValueError, match=message):
        inputs(texts, text, EMBED)


@pytest.mark.parametrize(
    ("labels", "message"), [(("a",), "at least two"), (("a", "b", "a"), "label 'a' is there twice")]
)
def test_labels_that_make_no_choice_are_refused(labels, message):
    with pytest.raises(ValueError, match=message):
        check_labels(labels)
