from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import gguf
import numpy as np
import pytest
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from hypothesis import given, settings, strategies as st

from unspool.models.loading.gguf_file import is_gguf, open_gguf, readable_types


def blocks(kind, rows, columns, seed=0):
    """Random packed numbers of the type, with scales that are small numbers."""
    block, size = GGML_QUANT_SIZES[kind]
    packed = np.random.default_rng(seed).integers(0, 256, (rows, columns // block, size), np.uint8)
    # float16 scales stand at the beginning or at the end of a block; 0x2c is the high byte of 1/16.
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
    file.fill("a.weight", out)
    assert out.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_rows_come_in_the_order_asked_for(tmp_path):
    file = open_gguf(small(tmp_path / "small.gguf"))
    plain, turned = torch.empty(2, 4, 64)
    file.fill("b.weight", plain)
    order = torch.tensor([2, 0, 3, 1])
    file.fill("b.weight", turned, order)
    assert torch.equal(turned, plain[order])
    assert torch.equal(file.stored("b.weight", order).restore(), turned)


@pytest.mark.parametrize(
    "name", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q6_K", "Q2_K"]
)
def test_numbers_are_those_of_gguf(tmp_path, name):
    kind = GGMLQuantizationType[name]
    packed = (
        blocks(kind, 6, 512)
        if "Q" in name
        else gguf.quantize(np.linspace(-3, 3, 3072, dtype=np.float32), kind)
    )
    packed = packed.reshape(6, -1)
    file = open_gguf(write(tmp_path / "x.gguf", [("x", packed, kind)]))
    out = torch.empty(6, 512)
    file.fill("x", out)
    np.testing.assert_array_equal(out.numpy(), dequantize(packed, kind).reshape(6, 512))
    assert out.abs().max() > 0
    stored = file.stored("x")
    if name in ("Q5_0", "Q5_1", "Q2_K"):
        assert stored is None
    else:
        assert stored.format.name == name
        assert torch.equal(stored.restore(), out)


def test_a_tensor_of_several_chunks_is_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "unspool.models.loading.gguf_file._NUMBERS_PER_CHUNK", 96
    )  # three blocks: 512 numbers leave a rest
    packed = blocks(GGMLQuantizationType.Q5_0, 5, 512)
    file = open_gguf(write(tmp_path / "x.gguf", [("x", packed, GGMLQuantizationType.Q5_0)]))
    out = torch.empty(5, 512)
    file.fill("x", out)
    np.testing.assert_array_equal(out.numpy(), dequantize(packed, GGMLQuantizationType.Q5_0))


def test_a_matrix_is_used_where_it_lies_in_the_file(tmp_path):
    path = small(tmp_path / "small.gguf")
    file = open_gguf(path)
    stored = file.stored("b.weight")
    at = file.tensors["b.weight"].offset
    assert bytes(stored.packed.flatten().tolist()) == path.read_bytes()[at : at + stored.nbytes]
    base = torch.frombuffer(file.data, dtype=torch.uint8).data_ptr()
    assert stored.packed.data_ptr() == base + at
    file.let_go("b.weight")  # and comes again
    before = stored.restore()
    # what is written to it never reaches the file
    stored.packed.zero_()
    assert torch.equal(open_gguf(path).stored("b.weight").restore(), before)


def test_rows_and_vectors_that_lie_crookedly(tmp_path, raw_gguf):
    """A file may align its tensors to nothing: what is read as numbers is then copied."""
    numbers = np.arange(64, dtype=np.float32).reshape(2, 32)
    table = raw_gguf(b"GGUF", 3, (1,), (1,), "general.alignment", 4, 1, "x", 2, (32,), (2,), 0, (0,))
    content = table + numbers.tobytes()
    path = tmp_path / "crooked.gguf"
    path.write_bytes(content)
    file = open_gguf(path)
    assert file.tensors["x"].offset % 4
    stored = file.stored("x")
    assert stored.packed.data_ptr() % 4 == 0
    assert stored.restore().tolist() == numbers.tolist()


@pytest.mark.parametrize("name", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q5_K", "Q6_K"])
def test_a_scale_that_is_not_finite_is_an_error_before_anything_is_used(tmp_path, name):
    kind = GGMLQuantizationType[name]
    packed = blocks(kind, 4, 512) if "Q" in name else gguf.quantize(np.zeros((4, 512), np.float32), kind)
    packed = packed.view(np.uint8).reshape(4, -1).copy()
    size = GGML_QUANT_SIZES[kind][1]
    last = 208 if name == "Q6_K" else 0
    packed[2, size + last : size + last + 2] = [0x80, 0x7F] if name == "BF16" else [0x01, 0x7C]
    file = open_gguf(write(tmp_path / "x.gguf", [("x", packed, kind)]))
    with pytest.raises(ValueError, match=r"tensor 'x' holds NaN or infinity: a damaged file"):
        file.stored("x")
    with pytest.raises(ValueError, match=r"tensor 'x' holds NaN or infinity: a damaged file"):
        file.fill("x", torch.empty(4, 512))


def test_the_metadata_is_that_of_gguf_reader(tmp_path):
    path = small(tmp_path / "small.gguf")
    reader, ours = gguf.GGUFReader(path), open_gguf(path)
    theirs = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    assert ours.metadata == theirs
    for tensor in reader.tensors:
        assert ours.tensors[tensor.name].offset == tensor.data_offset
        assert ours.tensors[tensor.name].size == tensor.n_bytes


def test_an_unreadable_type_is_named_with_the_readable_ones(tmp_path):
    file = open_gguf(write(tmp_path / "x.gguf", [("x", np.arange(32, dtype=np.int32), None)]))
    with pytest.raises(ValueError, match=r"tensor 'x' is stored as I32.*readable are F32, F16, Q4_0"):
        file.fill("x", torch.empty(32))
    assert {"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q6_K"} <= set(readable_types())


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_not_finite_is_an_error(tmp_path, bad):
    file = open_gguf(write(tmp_path / "x.gguf", [("x", np.array([1, bad, 2], np.float32), None)]))
    with pytest.raises(ValueError, match=r"tensor 'x' holds NaN or infinity"):
        file.fill("x", torch.empty(3))


def test_a_wrong_destination_is_an_error(tmp_path):
    file = open_gguf(small(tmp_path / "small.gguf"))
    with pytest.raises(ValueError, match=r"a\.weight has shape \[2, 3\]"):
        file.fill("a.weight", torch.empty(2, 2))


def test_is_gguf_looks_at_the_first_bytes(tmp_path):
    (tmp_path / "a").write_bytes(b"GGUF....")
    (tmp_path / "b.gguf").write_bytes(b"GG")
    assert is_gguf(tmp_path / "a")
    assert not is_gguf(tmp_path / "b.gguf")


@pytest.fixture(scope="module")
def whole():
    """The bytes of a good file, and where its last tensor ends (a few bytes of padding may follow)."""
    with TemporaryDirectory() as folder:
        path = small(Path(folder) / "small.gguf")
        file = open_gguf(path)
        return path.read_bytes(), max(tensor.offset + tensor.size for tensor in file.tensors.values())


def test_a_model_cut_at_or_before_the_end_of_any_tensor_is_an_error(tmp_path):
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
def test_a_file_cut_anywhere_is_an_error(whole, data):
    content, end = whole
    cut = data.draw(st.integers(0, end - 1))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "cut.gguf"
        path.write_bytes(content[:cut])
        with pytest.raises(ValueError, match=r"cut\.gguf"):
            open_gguf(path)


@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_a_file_with_changed_bytes_is_read_or_is_an_error(whole, data):
    content, end = whole
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
