import pytest

from unspool.models.loading.gguf_file import GGUFCursor, GGUFTensor, open_gguf, read_table

HEAD = (b"GGUF", 3)
HUGE = 2**63


def test_a_table_by_hand(raw_gguf):
    table = raw_gguf(*HEAD, (1,), (1,), "k", 4, 5, "t", 2, (32,), (2,), 8, (0,))
    start = -(-len(table) // 32) * 32
    data = table.ljust(start, b"\0") + bytes(2 * 34)
    metadata, tensors = read_table(GGUFCursor("x.gguf", data))
    assert metadata == {"k": 5}
    assert tensors == {"t": GGUFTensor("t", (2, 32), 8, start, 2 * 34)}  # Q8_0: 32 numbers in 34 bytes


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((b"",), "not a GGUF file: it has only 0 bytes"),
        ((b"PK\x03\x04 and so on",), r"not a GGUF file: it begins with b'PK"),
        ((b"GGUF", 1, (0,), (0,)), "version 1 cannot be read"),
        ((b"GGUF\x00\x00\x00\x03", (0,), (0,)), "a big-endian file"),
        ((*HEAD, (HUGE,), (0,)), rf"expected {HUGE} tensors"),
        ((*HEAD, (0,), (HUGE,)), rf"expected {HUGE} metadata pairs"),
        ((*HEAD, (0,), (1,), (HUGE,), b"key".ljust(64)), "expected the key of metadata pair 0"),
        ((*HEAD, (0,), (1,), "k", 8, (HUGE,)), r"expected k \("),
        ((*HEAD, (0,), (1,), "k", 9, 8, (HUGE,)), r"expected k \("),
        ((*HEAD, (0,), (1,), "k", 9, 4, (HUGE,)), r"expected k \("),
        ((*HEAD, (0,), (1,), "k", 9, 9, (HUGE,)), r"expected k \("),
        ((*HEAD, (0,), (1,), "k", *(9,), *((9, (1,)) * 9)), "arrays no more than 4 deep"),
        ((*HEAD, (0,), (1,), "k", 13, (0,)), "a value type from 0 to 12 for k, found 13"),
        ((*HEAD, (0,), (1,), "k", 9, 8, (2,), "ok", (HUGE,)), "text 1 of 2 in k"),
        (
            (*HEAD, (0,), (1,), "k", 9, 8, (2,), "ok", (2,), b"\xff\xff"),
            "text 1 of 2 in k in UTF-8, found byte 0xff",
        ),
        ((*HEAD, (0,), (1,), "k", 8, (2,), b"\xff\xff"), "k in UTF-8"),
        ((*HEAD, (0,), (2,), "k", 4, 1, "k", 4, 1), "a new metadata key, found 'k' again"),
        ((*HEAD, (1,), (1,), "general.alignment", 4, 48, "t", 1, (4,), 0, (0,)), "power of two, found 48"),
        ((*HEAD, (1,), (0,), "t", 9, (4,), 0, (0,)), "1 to 4 dimensions for t, found 9"),
        ((*HEAD, (1,), (0,), "t\x1b\nu", 9, (4,), 0, (0,)), r"dimensions for t\\x1b\\nu, found 9"),
        ((*HEAD, (0,), (1,), "k" * 5000, 13, (0,)), r"a value type from 0 to 12 for k{100,200}…; the file"),
        ((*HEAD, (1,), (0,), "t", 1, (4,), 999, (0,)), "a number type that gguf knows for t, found 999"),
        ((*HEAD, (1,), (0,), "t", 1, (0,), 0, (0,)), r"found shape \[0\]"),
        ((*HEAD, (1,), (0,), "t", 1, (33,), 8, (0,)), r"whole blocks of 32 numbers, found shape \[33\]"),
        ((*HEAD, (1,), (0,), "t", 1, (4,), 0, (8,), bytes(64)), "offset to be a multiple of 32, found 8"),
        ((*HEAD, (1,), (0,), "t", 1, (4,), 0, (0,)), r"expected t's data \(16 bytes"),
        ((*HEAD, (1,), (0,), "t", 4, (HUGE,), (HUGE,), (HUGE,), (HUGE,), 0, (0,)), "expected t's data"),
        (
            (*HEAD, (2,), (0,), *(("t", 1, (4,), 0, (0,)) * 2), bytes(64)),
            "a new tensor name, found 't' again",
        ),
        (
            (*HEAD, (2,), (0,), "t", 1, (9,), 0, (0,), "u", 1, (4,), 0, (32,), bytes(96)),
            "u's data behind t's, which ends later",
        ),
        ((*HEAD, (1,), (0,), "t", 1, (4,), 0, (2**40,), bytes(64)), r"expected t's data \(16 bytes at"),
    ],
)
def test_a_broken_file_says_what_was_expected(tmp_path, raw_gguf, parts, message):
    path = tmp_path / "broken.gguf"
    path.write_bytes(raw_gguf(*parts))
    with pytest.raises(ValueError, match=message) as caught:
        open_gguf(path)
    assert str(path) in str(caught.value)


def test_version_2_is_read(tmp_path, raw_gguf):
    path = tmp_path / "two.gguf"
    path.write_bytes(raw_gguf(b"GGUF", 2, (0,), (1,), "k", 4, 5))
    assert open_gguf(path).metadata == {"k": 5}
