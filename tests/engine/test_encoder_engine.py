from dataclasses import replace

import numpy as np
import pytest
import torch

from unspool.engine.attention_tiles import BLOCK
from unspool.engine.compiled_transformer import compiled_decoder, compiled_encoder
from unspool.engine.transformer_engine import MAX_ROWS_PER_CALL
from unspool.models.transformer_seq2seq import TransformerSeq2SeqConfig

PAIRS = TransformerSeq2SeqConfig(
    vocab_size=31, width=16, heads=2, inner_width=32, encoder_layers=1, decoder_layers=2, bos=1, eos=2
)


@pytest.fixture(scope="module")
def read():
    torch.manual_seed(0)
    model = PAIRS.build().eval()
    encoder, decoder = compiled_encoder(model), compiled_decoder(model).shape
    return lambda sources: encoder.read(sources, decoder)


def rows(pool):
    """The keys and values (tokens, heads, 2, width) of every row."""
    width = PAIRS.width // PAIRS.heads
    for blocks, length in zip(pool.blocks, pool.lengths, strict=True):
        held = np.stack([pool._block(block) for block in blocks[blocks >= 0]])
        keys, values = held.reshape(len(held), -1, 2, BLOCK * width).swapaxes(0, 2).swapaxes(1, 2)
        k = keys.reshape(len(held), -1, width, BLOCK).transpose(0, 3, 1, 2)
        v = values.reshape(len(held), -1, BLOCK, width).swapaxes(1, 2)
        yield np.stack([k, v], 3).reshape(len(held) * BLOCK, -1)[:length]


def test_a_source_is_bit_identical_alone_and_in_a_batch(read):
    lengths = [
        3,
        MAX_ROWS_PER_CALL - 3,
        1,
        2 * MAX_ROWS_PER_CALL + 5,
        17,
    ]  # of two calls, of one that is longer, and of a last one
    sources = [[(7 * n + t) % 31 for t in range(length)] for n, length in enumerate(lengths)]
    together = read(sources)
    assert together.lengths.tolist() == lengths
    for source, found in zip(sources, rows(together), strict=True):
        (alone,) = rows(read([source]))
        np.testing.assert_array_equal(found, alone)


def test_cross_attention_of_keyless_models_has_keys():
    torch.manual_seed(0)
    model = replace(PAIRS, attention="keyless", positions="none").build().eval()
    decoder = compiled_decoder(model).shape
    assert decoder.key_width == PAIRS.width
    assert compiled_encoder(model).read([[5]], decoder).block_size == BLOCK * 8 * 2 * 2 * 2


def test_a_source_is_read_in_both_directions(read):
    (one,), (other,) = rows(read([[5, 6, 7]])), rows(read([[5, 6, 8]]))
    assert not np.array_equal(one[0], other[0])
