import torch

from unspool.engine.int8_matmul import INPUT_RECORD
from unspool.engine.stored_weights import StoredWeight, quantise_int8
from unspool.engine.weight_formats import F16, F32, FLOAT32, INT8
from unspool.engine.weight_table import BIAS, END, FORMAT, FUNCTION, INPUTS, OUTPUTS, PIECE, WEIGHT, Weights


def test_a_matrix_is_where_its_tensor_lies():
    weights, matrix, bias = Weights(1), torch.ones(3, 5), torch.zeros(3)
    weights.put(1, 2, matrix, bias)
    row = weights.table[1, 2]
    assert (row[FORMAT], row[WEIGHT], row[OUTPUTS], row[INPUTS]) == (FLOAT32, matrix.data_ptr(), 3, 5)
    assert row[BIAS] == bias.data_ptr()
    assert [row[at + END] for at in (0, PIECE, 2 * PIECE)] == [3, 3, 3]
    assert weights.size == 15


def test_stored_matrices_are_stacked_each_in_its_format():
    small = quantise_int8(torch.ones(4, 64))
    odd = StoredWeight(F16, torch.ones(2, 33, dtype=torch.float16).view(torch.uint8), (2, 33))
    weights = Weights(0)
    weights.put_stored(0, 0, [small, small])
    row = weights.table[0, 0]
    assert [row[at + FORMAT] for at in (0, PIECE)] == [INT8.number, INT8.number]
    assert [row[at + END] for at in (0, PIECE, 2 * PIECE)] == [4, 8, 8]
    assert (row[OUTPUTS], row[BIAS]) == (8, 0)
    weights.put_stored(0, 1, [odd])  # no whole blocks of numbers in half precision
    assert weights.table[0, 1, FORMAT] == FLOAT32


def test_the_widest_row_that_is_made_ready_fits():
    weights = Weights(1)
    weights.put(0, 0, torch.ones(3, 5000))
    assert weights.ready_words() == 0
    weights.put_stored(0, 1, [StoredWeight(F32, torch.ones(2, 200).view(torch.uint8), (2, 200))])
    weights.put_stored(0, 2, [quantise_int8(torch.ones(2, 65))])
    assert weights.ready_words() == 2 * INPUT_RECORD


def test_a_format_has_a_function_of_its_own():
    kept = StoredWeight(F16, torch.ones(2, 32, dtype=torch.float16).view(torch.uint8), (2, 32))
    weights = Weights(0)
    weights.put_stored(0, 0, [kept, quantise_int8(torch.ones(2, 32)), kept])
    functions = [int(weights.table[0, 0, at + FUNCTION]) for at in (0, PIECE, 2 * PIECE)]
    assert functions[0] == functions[2] != 0
    assert functions[1] == 0
