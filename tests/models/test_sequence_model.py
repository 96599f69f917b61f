from dataclasses import replace

import pytest
import torch

from unspool.heads.nonlinear import MixtureHeadConfig
from unspool.heads.softmax import SoftmaxHeadConfig
from unspool.models.rnn_models import RNNConfig, RNNSeq2SeqConfig
from unspool.models.sequence_model import unit_embedding
from unspool.models.transformer_lm import TransformerConfig

CONFIG = RNNConfig(vocab_size=7, width=4)
PAIRS = RNNSeq2SeqConfig(vocab_size=7, width=4, bos=0, eos=1)


def test_what_is_known_of_every_model():
    model = CONFIG.build()
    assert (model.vocab_size, model.device, model.tokenizer) == (7, torch.device("cpu"), None)
    assert model.output_matrix is model.embed.weight
    assert replace(CONFIG, head=MixtureHeadConfig(experts=2)).build().output_matrix is None
    assert not model.is_encoder_decoder


def test_an_encoder_decoder_answers_and_may_have_a_vocabulary_for_sources():
    shared, apart = PAIRS.build(), replace(PAIRS, source_vocab_size=11).build()
    assert shared.is_encoder_decoder
    assert (shared.source_vocab_size, apart.source_vocab_size) == (None, 11)
    assert (shared.source_tokenizer, apart.source_tokenizer) == (None, None)


def test_it_is_built_from_its_own_settings():
    with pytest.raises(TypeError, match="RNNConfig"):
        type(CONFIG.build())(PAIRS)


def test_embeddings_begin_with_vectors_of_about_unit_length():
    torch.manual_seed(0)
    lengths = unit_embedding(500, 64).weight.norm(dim=-1)
    assert lengths.mean().item() == pytest.approx(1, abs=0.02)


def test_a_language_model_says_what_its_head_makes_of_hidden():
    model, tokens = CONFIG.build().eval(), torch.tensor([[1, 2, 3]])
    assert torch.equal(model(tokens), model.head(model.hidden(tokens)))


@pytest.mark.parametrize("tied", [True, False])
def test_a_head_is_tied_where_the_model_is_and_says_otherwise_where_it_must(tied):
    model = replace(CONFIG, tied=tied).build()
    assert (model.output_matrix is model.embed.weight) == tied
    own = replace(CONFIG, tied=tied, head=SoftmaxHeadConfig(tied=not tied)).build()
    assert (own.output_matrix is own.embed.weight) == (not tied)


def test_the_repr_is_one_line_with_size_context_and_engine():
    weights = sum(weight.numel() for weight in CONFIG.build().parameters())
    assert repr(CONFIG.build()) == f"RNNLM({weights} parameters, engine 'torch')"
    model = TransformerConfig(vocab_size=7, layers=1, width=4, heads=2, inner_width=4, context=12).build()
    model.engine = "torch"
    assert repr(model).endswith(" parameters, context 12, engine 'torch')")
