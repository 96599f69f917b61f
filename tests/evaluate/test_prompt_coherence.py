from math import log

import pytest
import torch

import unspool as us
from unspool.evaluate.prompt_coherence import coherence
from unspool.testing import bigram
from unspool.tokenization.vocabulary import train_characters

COIN = bigram([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]])


def test_by_hand():
    found = coherence(COIN, [[0], [2]], [[1, 1], [2]])
    assert found.fits == pytest.approx([(log(0.25) + log(0.8)) / 2, log(0.6)])
    assert found.fit == pytest.approx(sum(found.fits) / 2)
    assert found.similarity is None


def test_hidden_states_of_a_real_model():
    text = train_characters(["abcdef. "])
    torch.manual_seed(0)
    sizes = {"vocab_size": text.vocab_size, "width": 8, "heads": 2, "inner_width": 8, "layers": 1}
    model = us.models.TransformerConfig(**sizes).build(text).eval()
    found = coherence(model, ["abc", "fed"], ["def", "cba"])
    assert len(found.similarities) == 2
    assert all(-1 <= it <= 1 for it in found.similarities)
    assert found.similarity == pytest.approx(sum(found.similarities) / 2)


@pytest.mark.parametrize(
    ("prompts", "texts", "said"),
    [
        ([[0]], [[1], [1]], "2 outputs but 1 prompts"),
        ([], [], "texts is empty"),
        ([[0]], [[]], "empty"),
    ],
)
def test_incomparable_arguments_raise(prompts, texts, said):
    with pytest.raises(ValueError, match=said):
        coherence(COIN, prompts, texts)
