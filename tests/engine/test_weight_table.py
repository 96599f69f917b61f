import torch

from unspool.engine import weight_table
from unspool.engine.interleaved_matmul import INPUT_RECORD
from unspool.engine.stored_weights import StoredWeight, quantise_int8
from unspool.engine.weight_formats import F16, F32, FLOAT32, INT8
from unspool.engine.weight_table import (
    BIAS,
    END,
    FORMAT,
    FUNCTION,
    INPUTS,
    OUTPUTS,
    PIECE,
    WEIGHT,
    WeightTable,
)
from unspool.nn.norms import NORMS
from unspool.nn.transformer import ACTIVATIONS


def test_the_table_holds_the_address_of_a_tensor():
    weights, matrix, bias = WeightTable(1), torch.ones(3, 5), torch.zeros(3)
    weights.put(1, 2, matrix, bias)
    row = weights.table[1, 2]
    assert (row[FORMAT], row[WEIGHT], row[OUTPUTS], row[INPUTS]) == (FLOAT32, matrix.data_ptr(), 3, 5)
    assert row[BIAS] == bias.data_ptr()
    assert [row[at + END] for at in (0, PIECE, 2 * PIECE)] == [3, 3, 3]
    assert weights.size == 15


def test_stacked_matrices_keep_their_formats():
    small = quantise_int8(torch.ones(4, 64))
    odd = StoredWeight(F16, torch.ones(2, 33, dtype=torch.float16).view(torch.uint8), (2, 33))
    weights = WeightTable(0)
    weights.put_stored(0, 0, [small, small])
    row = weights.table[0, 0]
    assert [row[at + FORMAT] for at in (0, PIECE)] == [INT8.number, INT8.number]
    assert [row[at + END] for at in (0, PIECE, 2 * PIECE)] == [4, 8, 8]
    assert (row[OUTPUTS], row[BIAS]) == (8, 0)
    weights.put_stored(0, 1, [odd])  # no whole blocks of numbers in half precision
    assert weights.table[0, 1, FORMAT] == FLOAT32


def test_the_widest_prepared_row_fits():
    weights = WeightTable(1)
    weights.put(0, 0, torch.ones(3, 5000))
    assert weights.prepared_words() == 0
    weights.put_stored(0, 1, [StoredWeight(F32, torch.ones(2, 200).view(torch.uint8), (2, 200))])
    weights.put_stored(0, 2, [quantise_int8(torch.ones(2, 65))])
    assert weights.prepared_words() == 2 * INPUT_RECORD


def test_every_packed_format_has_a_function():
    kept = StoredWeight(F16, torch.ones(2, 32, dtype=torch.float16).view(torch.uint8), (2, 32))
    weights = WeightTable(0)
    weights.put_stored(0, 0, [kept, quantise_int8(torch.ones(2, 32)), kept])
    functions = [int(weights.table[0, 0, at + FUNCTION]) for at in (0, PIECE, 2 * PIECE)]
    assert functions[0] == functions[2] != 0
    assert functions[1] not in (0, functions[0])


def test_every_norm_and_activation_has_a_code():
    assert weight_table.NORMS.keys() == NORMS.keys()
    assert weight_table.ACTIVATIONS.keys() == ACTIVATIONS.keys()
    assert (weight_table.NORMS["rms"], weight_table.NORMS["layer"]) == (weight_table.RMS, weight_table.LAYER)
    chosen = [
        weight_table.ACTIVATIONS[name] for name in ("swiglu", "relu", "gelu", "gelu_tanh", "geglu", "silu")
    ]
    assert chosen == [
        weight_table.SWIGLU,
        weight_table.RELU,
        weight_table.GELU,
        weight_table.GELU_TANH,
        weight_table.GEGLU,
        weight_table.SILU,
    ]


def test_keyless_models_have_one_key_of_full_width():
    shape = weight_table.ModelShape(24, 1, 4, 2, 10, 4, 10, 0, 1e-5, False, 0, 2)
    assert (shape.key_heads, shape.key_width) == (2, 10)
    keyless = shape._replace(keyless=True)
    assert (keyless.key_heads, keyless.key_width) == (1, 24)


def test_parts_of_a_layer_have_different_numbers():
    names = ("ATTENTION", "CROSS", "FEED_FORWARD", "QUERY", "KEY")
    norms = [
        getattr(weight_table, name)
        for name in dir(weight_table)
        if name.endswith("_NORM") and name.startswith(names)
    ]
    matrices = [
        weight_table.QKV,
        weight_table.ATTENTION_OUT,
        weight_table.UP,
        weight_table.DOWN,
        weight_table.CROSS_QUERY,
        weight_table.CROSS_OUT,
    ]
    assert sorted(norms + matrices) == list(range(weight_table.PARTS))
