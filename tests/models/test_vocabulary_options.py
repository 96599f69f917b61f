from dataclasses import fields

import pytest

import unspool as us
from unspool.models.masked_models import MaskedLMConfig, MaskedSeq2SeqConfig
from unspool.models.model_config import PairOptions, VocabularyOptions

SPEAKERS = (us.models.TransformerConfig, us.models.RNNConfig, MaskedLMConfig)
TRANSLATORS = (us.models.TransformerSeq2SeqConfig, us.models.RNNSeq2SeqConfig, MaskedSeq2SeqConfig)


@pytest.mark.parametrize("config", [*SPEAKERS, *TRANSLATORS])
def test_what_all_share_is_said_once(config):
    assert issubclass(config, PairOptions if config in TRANSLATORS else VocabularyOptions)
    shared = fields(PairOptions if config in TRANSLATORS else VocabularyOptions)
    assert not {it.name for it in shared} & set(vars(config)["__annotations__"])


def test_an_output_layer_is_tied_unless_it_is_told_otherwise():
    options = VocabularyOptions(vocab_size=5)
    assert (options.vocab_size, options.tied, options.head) == (5, True, None)
    assert PairOptions(vocab_size=5).source_vocab_size is None
