import pickle

import gguf
import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from unspool.engine.weight_formats import FORMATS, GGML, INT8, Q4_K, Q8_0


def test_format_codes_are_indices_in_the_list():
    assert [kind.number for kind in FORMATS] == list(range(len(FORMATS)))


def test_a_pickled_format_is_the_same_object():
    assert all(pickle.loads(pickle.dumps(kind)) is kind for kind in FORMATS)


@pytest.mark.parametrize("number", GGML, ids=lambda number: GGML[number].name)
def test_ggml_has_the_same_names_and_sizes(number):
    kind = GGML[number]
    assert GGMLQuantizationType(number).name == kind.name
    assert GGML_QUANT_SIZES[number] == (kind.block, kind.block_bytes)


def test_every_format_except_int8_is_ggmls():
    assert {*FORMATS} - {*GGML.values()} == {INT8}
    assert gguf.GGMLQuantizationType(2) is GGMLQuantizationType.Q4_0


def test_bytes_of_a_row():
    assert Q8_0.row_bytes(64) == 2 * (2 + 32)
    assert Q4_K.row_bytes(512) == 2 * 144
    # 100 numbers are a block of 64 and one that is filled up
    assert INT8.row_bytes(100) == 2 * (4 + 64)


def test_interleaved_rows_are_padded():
    assert Q8_0.packed_shape(17, 64) == (17, 2 * (2 + 32))
    assert INT8.packed_shape(17, 100) == (2, 16 * 2 * (4 + 64))
