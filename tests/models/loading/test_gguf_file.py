from __future__ import annotations

import struct
from pathlib import Path
from tempfile import TemporaryDirectory

import gguf
import numpy as np
import pytest
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from hypothesis import given, settings, strategies as st

from unspool.models.loading.gguf_file import (
    GGUFCursor,
    GGUFTensor,
    is_gguf,
    open_gguf,
    read_table,
)
from unspool.models.loading.weight_layout import SourcePart


def blocks(kind, rows, columns, seed=0):
    """Random packed numbers of a type, with small scales."""
    block, size = GGML_QUANT_SIZES[kind]
    packed = np.random.default_rng(seed).integers(0, 256, (rows, columns // block, size), np.uint8)
    # float16 scales are at the start or end of a block; 0x2c is the high byte of 1/16.
    for place in (1, 3, size - 1, size - 3):
        packed[..., place] = 0x2C
    return packed.reshape(rows, -1)


def write(path, tensors=(), pairs=(), **options):
    """A GGUF file by gguf's own writer."""
    writer = gguf.GGUFWriter(path, "llama", **options)
    for key, kind, value in pairs:
        getattr(writer, f"add_{kind}")(key, value)
    for name, data, kind in tensors:
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def part(file, name, heads=0):
    return SourcePart(name, file.shapes[name], heads=heads)


def small(path):
    return write(
        path,
        [
            ("a.weight", np.arange(6, dtype=np.float32).reshape(2, 3), None),
            ("b.weight", blocks(GGMLQuantizationType.Q4_1, 4, 64), GGMLQuantizationType.Q4_1),
        ],
        [
            ("t.word", "string", "héllo"),
            ("t.whole", "uint32", 7),
            ("t.negative", "int64", -8),
            ("t.real", "float32", 0.5),
            ("t.yes", "bool", True),
            ("t.words", "array", ["Ġa", "", "ßé"]),
            ("t.numbers", "array", [1, -2, 3]),
            ("t.reals", "array", [0.5, 0.25]),
        ],
    )


def test_metadata_and_tensors_by_hand(tmp_path):
    file = open_gguf(small(tmp_path / "small.gguf"))
    expected = {
        "general.architecture": "llama",
        "t.word": "héllo",
        "t.whole": 7,
        "t.negative": -8,
        "t.real": 0.5,
        "t.yes": True,
        "t.words": ["Ġa", "", "ßé"],
        "t.numbers": [1, -2, 3],
        "t.reals": [0.5, 0.25],
    }
    assert {key: file.metadata[key] for key in expected} == expected
    assert file.tensors["a.weight"].shape == (2, 3)
    assert file.tensors["b.weight"].shape == (4, 64)
    out = torch.empty(2, 3)
    file.fill(part(file, "a.weight"), out)
    assert out.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_rows_are_reordered(tmp_path):
    file = open_gguf(small(tmp_path / "small.gguf"))
    plain, reordered = torch.empty(2, 4, 64)
    file.fill(part(file, "b.weight"), plain)
    file.fill(part(file, "b.weight", heads=1), reordered)
    assert torch.equal(reordered, plain[[0, 2, 1, 3]])
    assert torch.equal(file.stored(part(file, "b.weight", heads=1)).restore(), reordered)


def test_rows_of_types_without_a_kernel_are_reordered(tmp_path):
    packed = blocks(GGMLQuantizationType.Q2_K, 4, 256)
    file = open_gguf(write(tmp_path / "x.gguf", [("x", packed, GGMLQuantizationType.Q2_K)]))
    plain, reordered = torch.empty(2, 4, 256)
    file.fill(part(file, "x"), plain)
    file.fill(part(file, "x", heads=2), reordered)
    assert torch.equal(reordered, plain[[0, 1, 2, 3]])
    file.fill(part(file, "x", heads=1), reordered)
    assert torch.equal(reordered, plain[[0, 2, 1, 3]])


@pytest.mark.parametrize(
    "name", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q6_K", "Q2_K"]
)
def test_dequantised_numbers_equal_the_gguf_package(tmp_path, name):
    kind = GGMLQuantizationType[name]
    packed = (
        blocks(kind, 6, 512)
        if "Q" in name
        else gguf.quantize(np.linspace(-3, 3, 3072, dtype=np.float32), kind)
    )
    packed = packed.reshape(6, -1)
    file = open_gguf(write(tmp_path / "x.gguf", [("x", packed, kind)]))
    out = torch.empty(6, 512)
    file.fill(part(file, "x"), out)
    np.testing.assert_array_equal(out.numpy(), dequantize(packed, kind).reshape(6, 512))
    assert out.abs().max() > 0
    stored = file.stored(part(file, "x"))
    if name == "Q2_K":
        assert stored is None
    else:
        assert stored.format.name == name
        assert torch.equal(stored.restore(), out)


def test_a_tensor_of_several_chunks_is_complete(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "unspool.models.loading.gguf_file._NUMBERS_PER_CHUNK", 768
    )  # three blocks: 1,280 numbers leave a rest
    packed = blocks(GGMLQuantizationType.Q2_K, 5, 256)
    file = open_gguf(write(tmp_path / "x.gguf", [("x", packed, GGMLQuantizationType.Q2_K)]))
    out = torch.empty(5, 256)
    file.fill(part(file, "x"), out)
    np.testing.assert_array_equal(out.numpy(), dequantize(packed, GGMLQuantizationType.Q2_K))


def test_a_stored_matrix_is_memory_mapped(tmp_path):
    path = small(tmp_path / "small.gguf")
    file = open_gguf(path)
    stored = file.stored(part(file, "b.weight"))
    at = file.tensors["b.weight"].offset
    assert bytes(stored.packed.flatten().tolist()) == path.read_bytes()[at : at + stored.packed.nbytes]
    base = torch.frombuffer(file.data, dtype=torch.uint8).data_ptr()
    assert stored.packed.data_ptr() == base + at
    file.release(part(file, "b.weight"))  # and comes again
    before = stored.restore()
    # what is written to it never reaches the file
    stored.packed.zero_()
    assert torch.equal(open_gguf(path).stored(part(file, "b.weight")).restore(), before)


def test_unaligned_rows_and_vectors_are_read(tmp_path, raw_gguf):
    """Unaligned tensors are copied."""
    numbers = np.arange(64, dtype=np.float32).reshape(2, 32)
    table = raw_gguf(b"GGUF", 3, (1,), (1,), "general.alignment", 4, 1, "x", 2, (32,), (2,), 0, (0,))
    content = table + numbers.tobytes()
    path = tmp_path / "crooked.gguf"
    path.write_bytes(content)
    file = open_gguf(path)
    assert file.tensors["x"].offset % 4
    stored = file.stored(part(file, "x"))
    assert stored.packed.data_ptr() % 4 == 0
    assert stored.restore().tolist() == numbers.tolist()


@pytest.mark.parametrize("name", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q5_K", "Q6_K"])
def test_gguf_scales_that_are_not_finite_are_rejected(tmp_path, name):
    kind = GGMLQuantizationType[name]
    packed = blocks(kind, 4, 512) if "Q" in name else gguf.quantize(np.zeros((4, 512), np.float32), kind)
    packed = packed.view(np.uint8).reshape(4, -1).copy()
    size = GGML_QUANT_SIZES[kind][1]
    last = 208 if name == "Q6_K" else 0
    packed[2, size + last : size + last + 2] = [0x80, 0x7F] if name == "BF16" else [0x01, 0x7C]
    file = open_gguf(write(tmp_path / "x.gguf", [("x", packed, kind)]))
    with pytest.raises(ValueError, match=r"tensor 'x' holds NaN or infinity: the file is damaged"):
        file.stored(part(file, "x"))
    with pytest.raises(ValueError, match=r"tensor 'x' holds NaN or infinity: the file is damaged"):
        file.fill(part(file, "x"), torch.empty(4, 512))


def test_metadata_equals_the_gguf_package(tmp_path):
    path = small(tmp_path / "small.gguf")
    reader, ours = gguf.GGUFReader(path), open_gguf(path)
    reference = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    assert ours.metadata == reference
    for tensor in reader.tensors:
        assert ours.tensors[tensor.name].offset == tensor.data_offset
        assert ours.tensors[tensor.name].size == tensor.n_bytes


def test_unreadable_types_are_reported(tmp_path):
    file = open_gguf(write(tmp_path / "x.gguf", [("x", np.arange(32, dtype=np.int32), None)]))
    with pytest.raises(ValueError, match=r"tensor 'x' is stored as I32, which .* cannot dequantise"):
        file.fill(part(file, "x"), torch.empty(32))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_gguf_numbers_that_are_not_finite_are_rejected(tmp_path, bad):
    file = open_gguf(write(tmp_path / "x.gguf", [("x", np.array([1, bad, 2], np.float32), None)]))
    with pytest.raises(ValueError, match=r"tensor 'x' holds NaN or infinity"):
        file.fill(part(file, "x"), torch.empty(3))


def test_is_gguf_checks_the_magic_bytes(tmp_path):
    (tmp_path / "a").write_bytes(b"GGUF....")
    (tmp_path / "b.gguf").write_bytes(b"GG")
    assert is_gguf(tmp_path / "a")
    assert not is_gguf(tmp_path / "b.gguf")


@pytest.fixture(scope="module")
def complete_file():
    """The bytes of a valid file, and the end of its last tensor (padding may follow)."""
    with TemporaryDirectory() as folder:
        path = small(Path(folder) / "small.gguf")
        file = open_gguf(path)
        return path.read_bytes(), max(tensor.offset + tensor.size for tensor in file.tensors.values())


def test_gguf_truncation_inside_any_tensor_is_rejected(tmp_path):
    names = ["token_embd.weight", "blk.0.attn_q.weight", "output.weight"]
    kinds = [GGMLQuantizationType.Q8_0, GGMLQuantizationType.Q4_K, GGMLQuantizationType.Q6_K]
    path = write(
        tmp_path / "whole.gguf",
        [(name, blocks(kind, 4, 256), kind) for name, kind in zip(names, kinds, strict=True)],
    )
    content, tensors = path.read_bytes(), open_gguf(path).tensors
    ends = [tensor.offset + tensor.size for tensor in tensors.values()]
    cuts = {cut for tensor in tensors.values() for cut in (tensor.offset, tensor.offset + 1)}
    cuts |= {end - 1 for end in ends} | {end for end in ends if end != max(ends)}
    for cut in cuts:
        (tmp_path / "cut.gguf").write_bytes(content[:cut])
        with pytest.raises(ValueError, match=r"cut\.gguf.* expected .*'s data"):
            open_gguf(tmp_path / "cut.gguf")
    (tmp_path / "cut.gguf").write_bytes(content[: max(ends)])
    assert open_gguf(tmp_path / "cut.gguf").tensors == tensors


@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_gguf_truncation_anywhere_is_rejected(complete_file, data):
    content, end = complete_file
    cut = data.draw(st.integers(0, end - 1))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "cut.gguf"
        path.write_bytes(content[:cut])
        with pytest.raises(ValueError, match=r"cut\.gguf"):
            open_gguf(path)


@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_gguf_corruption_never_crashes(complete_file, data):
    content, end = complete_file
    changed = bytearray(content)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, end - 1))] = data.draw(st.integers(0, 255))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "changed.gguf"
        path.write_bytes(changed)
        try:
            file = open_gguf(path)
        except ValueError as error:
            assert "changed.gguf" in str(error)  # noqa: PT017 — either outcome is right
        else:
            assert all(tensor.offset + tensor.size <= len(changed) for tensor in file.tensors.values())


HEAD = (b"GGUF", 3)
HUGE = 2**63


def test_tensor_table_by_hand(raw_gguf):
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
            "u's data after the end of t's",
        ),
        ((*HEAD, (1,), (0,), "t", 1, (4,), 0, (2**40,), bytes(64)), r"expected t's data \(16 bytes at"),
    ],
)
def test_gguf_offset_and_count_overflows_are_rejected(tmp_path, raw_gguf, parts, message):
    path = tmp_path / "broken.gguf"
    path.write_bytes(raw_gguf(*parts))
    with pytest.raises(ValueError, match=message) as caught:
        open_gguf(path)
    assert str(path) in str(caught.value)


def test_gguf_version_2_is_read(tmp_path, raw_gguf):
    path = tmp_path / "two.gguf"
    path.write_bytes(raw_gguf(b"GGUF", 2, (0,), (1,), "k", 4, 5))
    assert open_gguf(path).metadata == {"k": 5}


def cursor(data):
    return GGUFCursor("x.gguf", data)


def test_cursor_reads_values_in_order(raw_gguf):
    result = cursor(raw_gguf(7, "ab", 9, 4, (2,), 1, 2, 9, 8, (2,), "c", ""))
    assert result.scalar("I", "a number") == 7
    assert result.string("a word") == "ab"
    assert result.value("numbers") == [1, 2]
    assert result.value("words") == ["c", ""]
    assert result.at == result.end


def test_gguf_truncated_string_is_reported_with_its_offset(raw_gguf):
    result = cursor(raw_gguf(7, (5,), b"abc"))
    result.scalar("I", "a number")
    with pytest.raises(ValueError, match=r"x\.gguf: at byte 12 of 15: expected a word \(5 bytes or more\)"):
        result.string("a word")


@given(st.lists(st.text()))
def test_strings_in_bulk_equal_single_strings(texts):
    data = b"".join(struct.pack("<Q", len(it.encode())) + it.encode() for it in texts)
    assert cursor(data).strings(len(texts), "words") == texts
    slow = cursor(data)
    assert [slow.string("a word") for _ in texts] == texts
