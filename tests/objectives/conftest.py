"""Models of a few hundred weights, and batches for them."""

import pytest
import torch

from unspool.data.batch import Batch
from unspool.interfaces import Clock
from unspool.models.encoders import ENCODERS
from unspool.models.labelling import ClassifierConfig
from unspool.models.masked_models import MaskedLMConfig, MaskedSeq2SeqConfig
from unspool.models.rnn_models import RNNConfig
from unspool.models.transformer_lm import TransformerConfig
from unspool.models.transformer_seq2seq import TransformerSeq2SeqConfig
from unspool.tokenization.vocabulary import train_words

SHAPE = {"width": 8, "heads": 2, "inner_width": 12}


def sides(tokens, lengths):
    T = len(tokens[0])
    weights = (torch.arange(T - 1)[None] < torch.tensor(lengths)[:, None]).float()
    tokens = torch.tensor(tokens)
    return tokens[:, :-1], torch.tensor(lengths), tokens[:, 1:], weights


@pytest.fixture
def clock():
    return Clock(0, 10)


@pytest.fixture
def transformer():
    """Makes a language model."""

    def make(vocab_size=9, layers=2, seed=0, **options):
        torch.manual_seed(seed)
        return TransformerConfig(vocab_size=vocab_size, layers=layers, **{**SHAPE, **options}).build()

    return make


@pytest.fixture
def translator():
    """Makes an encoder–decoder: BOS is 1, EOS 2."""

    def make(vocab_size=9, seed=0, **options):
        torch.manual_seed(seed)
        layers = {"encoder_layers": 2, "decoder_layers": 2}
        config = TransformerSeq2SeqConfig(
            vocab_size=vocab_size, bos=1, eos=2, **{**SHAPE, **layers, **options}
        )
        return config.build()

    return make


@pytest.fixture
def masked():
    """Makes a model that fills hidden places: EOS is 2."""

    def make(kind="masked_lm", vocab_size=9, **options):
        torch.manual_seed(0)
        config, shape = {
            "masked_lm": (MaskedLMConfig, {"layers": 2}),
            "masked_seq2seq": (MaskedSeq2SeqConfig, {"encoder_layers": 2, "decoder_layers": 2, "bos": 1}),
        }[kind]
        return config(vocab_size=vocab_size, eos=2, **{**SHAPE, **shape, **options}).build()

    return make


@pytest.fixture
def lstm():
    torch.manual_seed(0)
    return RNNConfig(vocab_size=9, width=6, layers=1).build()


@pytest.fixture
def classifier():
    """Makes a classifier with an encoder of that kind."""

    def make(kind):
        torch.manual_seed(0)
        shape = SHAPE if kind == "transformer" else {"width": 8}
        encoder = ENCODERS[kind](layers=1, **shape)
        return ClassifierConfig(vocab_size=9, labels=("a", "b"), encoder=encoder).build()

    return make


@pytest.fixture
def rows():
    """Two rows for a language model, the second shorter."""
    return lambda: Batch(*sides([[1, 3, 4, 5, 6, 2], [1, 7, 8, 2, 0, 0]], [5, 3]))


@pytest.fixture
def pairs():
    """Two pairs for an encoder–decoder."""

    def make():
        source = torch.tensor([[3, 4, 5, 2], [6, 2, 0, 0]])
        return Batch(*sides([[1, 5, 4, 3, 2], [1, 6, 2, 0, 0]], [4, 2]), source, torch.tensor([4, 2]))

    return make


@pytest.fixture
def spoken():
    """An encoder–decoder with a text of two words, and a batch of two pairs for it."""
    text = train_words(["a b"])
    a, b, eos = (text.token_to_id(it) for it in ("a", "b", "</s>")) if text.token_to_id("</s>") else (4, 5, 2)
    torch.manual_seed(0)
    layers = {"encoder_layers": 1, "decoder_layers": 1}
    model = TransformerSeq2SeqConfig(vocab_size=text.vocab_size, **{**SHAPE, **layers}).build(text)
    for it in model.parameters():
        it.data = it.data + 0.3 * torch.randn_like(it)
    source = torch.tensor([[a, b, eos], [b, eos, 0]])
    inputs, lengths, targets, weights = sides([[text.bos_id, a, eos, 0], [text.bos_id, b, a, eos]], [2, 3])
    return model.eval(), Batch(inputs, lengths, targets, weights, source, torch.tensor([3, 2]))


@pytest.fixture
def every_answer():
    """All that a model with a vocabulary of V may say in two tokens at most."""

    def make(model):
        (eos,) = model.tokenizer.eos_ids
        others = [it for it in range(model.vocab_size) if it != eos]
        return [(eos,), *((first, then) for first in others for then in range(model.vocab_size))]

    return make
