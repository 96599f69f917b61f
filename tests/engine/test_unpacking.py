import numpy as np
import pytest
import torch
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize

from unspool.engine.weight_formats import GGML, INT8, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0


def half(number):
    return list(np.array([number], "<f2").tobytes())


def unpacked(kind, block):
    assert len(block) == kind.block_bytes
    out = torch.empty(1, kind.block)
    kind.unpack(torch.tensor([block], dtype=torch.uint8), out)
    return out[0].tolist()


def test_hand_computed_q8_0():
    assert unpacked(Q8_0, [*half(0.5), 2, 0xFF, *[0] * 30]) == [1.0, -0.5, *[0.0] * 30]


def test_hand_computed_q4_0():
    # the lower half of byte 1 is number 0, its upper half number 16; both count from −8
    assert unpacked(Q4_0, [*half(0.5), 0xF9, *[0x88] * 15]) == [0.5, *[0.0] * 15, 3.5, *[0.0] * 15]


def test_hand_computed_q4_1():
    assert unpacked(Q4_1, [*half(0.5), *half(-1.0), 0x21, *[0] * 15]) == [
        -0.5,
        *[-1.0] * 15,
        0.0,
        *[-1.0] * 15,
    ]


def test_hand_computed_q5_0():
    # every fifth bit but that of number 16 is set; codes count from −16
    fifth = [0xFF, 0xFF, 0xFE, 0xFF]
    assert unpacked(Q5_0, [*half(0.5), *fifth, 0xF9, *[0] * 15]) == [4.5, *[0.0] * 15, -0.5, *[0.0] * 15]


def test_hand_computed_q5_1():
    numbers = unpacked(Q5_1, [*half(0.5), *half(-1.0), 1, 0, 0, 0, 0x21, *[0] * 15])
    assert numbers == [7.5, *[-1.0] * 15, 0.0, *[-1.0] * 15]


def test_hand_computed_q4_k():
    # s = 3 and m = 1 in group 0, s = 16 + 2 = 18 and m = 32 + 5 = 37 in group 4, nothing elsewhere
    scales = [3 | 0x40, 0, 0, 0, 1 | 0x80, 0, 0, 0, 2 | 0x50, 0, 0, 0]
    numbers = unpacked(Q4_K, [*half(0.5), *half(2.0), *scales, *[7] * 32, *[0] * 32, *[1] * 32, *[0] * 32])
    assert numbers[:32] == [0.5 * 3 * 7 - 2.0 * 1] * 32
    assert numbers[32:128] == [0.0] * 96
    assert numbers[128:160] == [0.5 * 18 * 1 - 2.0 * 37] * 32
    assert numbers[160:] == [0.0] * 96


def test_hand_computed_q5_k():
    # bit g of byte i is the fifth bit of number i of group g
    scales = [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    high = [0b01, 0b10, *[0] * 30]
    numbers = unpacked(Q5_K, [*half(1.0), *half(0.0), *scales, *high, *[0x93] * 32, *[0] * 96])
    assert numbers[:64] == [16.0 + 3, *[3.0] * 31, 9.0, 16.0 + 9, *[9.0] * 30]
    assert numbers[64:] == [0.0] * 192


def test_hand_computed_q6_k():
    low, high = [0] * 128, [0] * 64
    low[0], high[0] = 0x21, 0b11_10_01_00  # numbers 0, 32, 64 and 96: their two upper bits are 0, 1, 2, 3
    scales = [2, 0, 0xFF, 0, 1, 0, 1, 0, *[0] * 8]  # −1 for numbers 32 to 47
    numbers = unpacked(Q6_K, [*low, *high, *scales, *half(0.5)])
    assert numbers[0] == 0.5 * 2 * (1 - 32)
    assert numbers[32] == 0.5 * -1 * (16 - 32)
    assert numbers[64] == 0.5 * 1 * (32 + 2 - 32)
    assert numbers[96] == 0.5 * 1 * (48 - 32)
    assert numbers[128:] == [0.0] * 128


def test_hand_computed_int8():
    scales = np.zeros(16, "<f4")
    scales[[0, 3]] = 0.25, 2
    codes = np.full((16, 16, 4), 128, np.uint8)  # four numbers of each of 16 rows, and so on
    codes[0, 0, 0], codes[0, 0, 1], codes[2, 3, 1] = 132, 1, 255
    out = torch.empty(16, 64)
    INT8.unpack(torch.tensor([[*scales.tobytes(), *codes.tobytes()]], dtype=torch.uint8), out)
    assert out[0].tolist() == [1.0, 0.25 * -127, *[0.0] * 62]
    assert out[3, 9] == 2 * 127
    assert int((out != 0).sum()) == 3


@pytest.mark.parametrize("number", GGML, ids=lambda number: GGML[number].name)
def test_ggmls_reference_gives_the_same_numbers_to_the_bit(number, stored):
    weight = stored(GGML[number], rows=9)
    want = dequantize(weight.packed.numpy(), GGMLQuantizationType(number))
    assert np.array_equal(weight.restore().numpy(), want)
