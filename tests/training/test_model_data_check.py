from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from unspool.data.batch import Batch
from unspool.training.recipe_checks import check_batches

TOKENS = torch.zeros(2, 5, dtype=torch.long)
BATCH = Batch(TOKENS, torch.tensor([5, 5]), TOKENS, torch.ones(2, 5))
PAIRS = replace(BATCH, source_NS=TOKENS, source_lengths_N=torch.tensor([5, 5]))
LM = SimpleNamespace(is_encoder_decoder=False, context=8)
PAIR_MODEL = SimpleNamespace(is_encoder_decoder=True, context=None)


def test_matching_data_is_accepted():
    check_batches(LM, [BATCH, BATCH])
    check_batches(PAIR_MODEL, [PAIRS])


def test_pairs_for_a_language_model_are_refused():
    with pytest.raises(ValueError, match="transformer_seq2seq"):
        check_batches(LM, [PAIRS])


def test_one_text_for_an_encoder_decoder_is_refused():
    with pytest.raises(ValueError, match="parallel"):
        check_batches(PAIR_MODEL, [BATCH])


def test_rows_that_are_too_long_are_refused():
    with pytest.raises(ValueError, match=r"5 tokens, but model.context is 4"):
        check_batches(SimpleNamespace(is_encoder_decoder=False, context=4), [BATCH])


def test_sources_that_are_too_long_are_refused():
    long = replace(
        PAIRS, source_NS=torch.zeros(2, 9, dtype=torch.long), source_lengths_N=torch.tensor([9, 9])
    )
    model = SimpleNamespace(is_encoder_decoder=True, context=8)
    check_batches(model, [PAIRS])
    with pytest.raises(ValueError, match=r"9 tokens, but model.context is 8"):
        check_batches(model, [long])
