import numpy as np
import pytest
import torch

import unspool as us
from unspool.models.encoders import RNNEncoderConfig, TransformerEncoderConfig
from unspool.models.labelling import ClassifierConfig, TaggerConfig, predict
from unspool.testing import bigram
from unspool.tokenization import train_bpe

LINES = ["good soup and good bread", "the bad cheese was sour", "bread"]
TEXT = train_bpe(LINES, 290)
ENCODERS = {
    "rnn": RNNEncoderConfig(width=8),
    "transformer": TransformerEncoderConfig(width=8, heads=2, inner_width=8, layers=1),
}


@pytest.fixture(params=ENCODERS)
def encoder(request):
    torch.manual_seed(0)
    return ENCODERS[request.param]


@pytest.fixture
def classifier(encoder):
    return ClassifierConfig(vocab_size=TEXT.vocab_size, labels=("x", "y", "z"), encoder=encoder).build(TEXT)


@pytest.fixture
def tagger(encoder):
    return TaggerConfig(vocab_size=TEXT.vocab_size, labels=("x", "y", "z"), encoder=encoder).build(TEXT)


def near(found, want):
    assert found.label == want.label
    assert found.probabilities == pytest.approx(want.probabilities, abs=1e-6)


@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_a_list_gives_a_list_in_its_order(classifier, tagger, batch_size):
    texts = [*LINES, TEXT.encode("good")]
    found = predict(classifier, texts, batch_size=batch_size)
    for each, text in zip(found, texts, strict=True):
        near(each, predict(classifier, [text])[0])
    tagged = predict(tagger, texts, batch_size=batch_size)
    for words, text in zip(tagged, texts, strict=True):
        (want,) = predict(tagger, [text])
        assert [it.word for it in words] == [it.word for it in want]
        for each, other in zip(words, want, strict=True):
            near(each, other)
    assert [[it.word for it in words] for words in tagged[:3]] == [line.split() for line in LINES]


def test_one_text_gives_one_answer(classifier, tagger):
    near(predict(classifier, LINES[0]), predict(classifier, LINES)[0])
    near(predict(classifier, TEXT.encode(LINES[0])), predict(classifier, LINES)[0])
    near(predict(classifier, [np.array(TEXT.encode(LINES[0]))])[0], predict(classifier, LINES)[0])
    assert [it.word for it in predict(tagger, "good bread")] == ["good", "bread"]
    assert us.predict is predict


def test_training_goes_on_as_before(classifier):
    classifier.train()
    predict(classifier, LINES)
    assert classifier.training
    assert all(it.requires_grad for it in classifier.parameters())


def said_of(model):
    with pytest.raises(TypeError) as caught:
        predict(model, "good")
    return str(caught.value)


@pytest.mark.parametrize("model", [bigram([[0.5, 0.5]] * 2), "runs/x", None])
def test_a_model_that_says_text_is_refused(model):
    assert "a RNNLM does not predict labels" in said_of(us.models.RNNConfig(vocab_size=5, width=4).build())
    with pytest.raises(TypeError, match=r"does not predict labels: .* use us\.generate"):
        predict(model, "good")


@pytest.mark.parametrize("texts", [None, 3, b"good", {"a": 1}])
def test_a_value_that_is_not_a_string_is_refused(classifier, texts):
    with pytest.raises(TypeError, match="must be a string, or a list of strings or token ids"):
        predict(classifier, texts)


def test_nothing_at_all_is_refused(classifier):
    with pytest.raises(ValueError, match="at least one text"):
        predict(classifier, [])
    with pytest.raises(ValueError, match="text 0 is empty"):
        predict(classifier, "")
    for wrong in (0, -1, 1.5, None, "2"):
        with pytest.raises(ValueError, match=r"batch_size is .* whole number of 1 or more"):
            predict(classifier, ["good"], batch_size=wrong)


def test_nothing_is_read_before_all_is_checked(classifier):
    with pytest.raises(ValueError, match="text 2 is empty"):
        predict(classifier, ["good", "bread", " "], batch_size=1)
