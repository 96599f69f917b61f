import pytest
import torch

from unspool.data.batch import Batch
from unspool.models.encoders import RNNEncoderConfig, TransformerEncoderConfig
from unspool.models.labelling import ClassifierConfig, TaggerConfig, predict, rank_labels


class Text:
    """Digits; 1 begins a text."""

    bos_id = 1
    eos_ids = frozenset({2})
    decode = detokenizer = None

    @staticmethod
    def encode(text):
        return [1, *map(int, text.replace(" ", ""))]


def build(text=None, config=ClassifierConfig, **encoder):
    return config(vocab_size=5, labels=("a", "b"), encoder=RNNEncoderConfig(width=2, **encoder)).build(text)


def test_labels_are_ranked_by_hand():
    first, second = rank_labels(torch.tensor([[0.2, 0.7, 0.1], [0.25, 0.25, 0.5]]).log(), ("a", "b", "c"))
    assert first == pytest.approx({"b": 0.7, "a": 0.2, "c": 0.1})
    assert list(first) == ["b", "a", "c"]
    assert list(second) == ["c", "a", "b"]  # of equals, the first label


def test_what_is_not_a_number_is_no_answer():
    with pytest.raises(ValueError, match="NaN: its weights are damaged, or its training diverged"):
        rank_labels(torch.tensor([[0.5, float("nan")]]), ("a", "b"))


def test_strings_and_token_ids_become_one_batch():
    model = build(Text)
    rows = model.read(["23", [4, 4, 4], torch.tensor([2])])
    tokens, lengths = model.inputs(rows)
    assert tokens.tolist() == [[2, 3, 0], [4, 4, 4], [2, 0, 0]]
    assert lengths.tolist() == [2, 3, 1]
    assert model.labels == ("a", "b")


@pytest.mark.parametrize("config", [ClassifierConfig, TaggerConfig])
@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "give a list of at least one text"),
        ("23", "give a list of at least one text"),
        (None, "give a list of at least one text"),
        (["23"], "text 0 is a string, but this model has no tokenizer"),
        ([[1], []], "text 1 is empty"),
        ([[1, 5]], "text 0 holds a token outside the model's vocabulary 0…4"),
        ([[-1]], "text 0 holds a token outside the model's vocabulary 0…4"),
    ],
)
def test_texts_that_cannot_be_read_are_refused(texts, message, config):
    with pytest.raises(ValueError, match=message):
        build(config=config).read(texts)


@pytest.mark.parametrize("wrong", [None, 3, b"ab", [0.5], ["a"]])
def test_a_value_that_is_not_a_string_is_refused(wrong):
    with pytest.raises(TypeError, match=r"text 1 is .* but must be a string or a list of token ids"):
        build().read([[1], wrong])


def test_a_text_of_white_space_is_empty():
    with pytest.raises(ValueError, match="text 0 is empty"):
        build(Text).read(["  "])


def test_a_text_longer_than_learned_positions_is_refused():
    encoder = TransformerEncoderConfig(
        width=4, heads=2, inner_width=4, layers=1, positions="learned", context=3
    )
    model = ClassifierConfig(vocab_size=5, labels=("a", "b"), encoder=encoder).build()
    assert predict(model, [[1, 2, 3]])
    with pytest.raises(ValueError, match="text 1 has 4 tokens, and the model reads at most 3: shorten it"):
        predict(model, [[1], [1, 2, 3, 4]])


@pytest.mark.parametrize(
    ("labels", "message"), [(("a",), "at least two"), (("a", "b", "a"), "label 'a' occurs twice")]
)
def test_fewer_than_two_labels_and_repeated_labels_are_refused(labels, message):
    with pytest.raises(ValueError, match=message):
        ClassifierConfig(vocab_size=5, labels=labels, encoder=RNNEncoderConfig(width=2))


@pytest.mark.parametrize("kind", [ClassifierConfig, TaggerConfig])
def test_a_transformer_tells_where_it_looks_and_a_recurrent_network_cannot(kind):
    shape = {"width": 8, "heads": 2, "inner_width": 12, "layers": 2}
    tokens = torch.tensor([[3, 4, 5]])
    batch = Batch(tokens, torch.tensor([3]), tokens, torch.ones(1, 3))
    model = kind(vocab_size=9, labels=("a", "b"), encoder=TransformerEncoderConfig(**shape)).build().eval()
    hidden, (stack,) = model.attention_reading.read_attention(batch)
    torch.testing.assert_close(hidden, model.hidden_for(batch), atol=1e-5, rtol=1e-5)
    assert len(stack.layers) == 2
    other = kind(vocab_size=9, labels=("a", "b"), encoder=RNNEncoderConfig(width=8, layers=1)).build()
    assert other.attention_reading is None
