import json

import pytest
import torch
from safetensors.torch import save_file

from unspool.engine.weight_formats import BF16, F16, F32
from unspool.models.loading.safetensors_files import open_safetensors
from unspool.models.loading.weight_layout import SourcePart


@pytest.fixture
def folder(tmp_path):
    save_file({"a": torch.arange(6.0).view(2, 3), "b": torch.ones(2)}, tmp_path / "model.safetensors")
    return tmp_path


@pytest.fixture
def sharded(tmp_path):
    save_file({"a": torch.zeros(2)}, tmp_path / "model-1.safetensors")
    save_file({"b": torch.ones(3)}, tmp_path / "model-2.safetensors")

    def index(weight_map):
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
        return tmp_path

    return index


def test_shapes_and_tensors(folder):
    files = open_safetensors(folder)
    assert files.shapes == {"a": (2, 3), "b": (2,)}
    assert files.tensor("a").tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_part_may_be_transposed(folder):
    out = torch.empty(3, 2)
    open_safetensors(folder).fill(SourcePart("a", (3, 2), transposed=True), out)
    assert out.tolist() == [[0, 3], [1, 4], [2, 5]]


@pytest.mark.parametrize(
    ("dtype", "kind"), [(torch.float16, F16), (torch.bfloat16, BF16), (torch.float32, F32)]
)
def test_a_stored_matrix_keeps_its_dtype(tmp_path, dtype, kind):
    numbers = torch.tensor([[0.5, 1.0, -2.0], [3.0, 0.25, 8.0]])
    save_file({"a": numbers.to(dtype), "v": torch.ones(3)}, tmp_path / "model.safetensors")
    files = open_safetensors(tmp_path)
    stored = files.stored(SourcePart("a", (2, 3)))
    assert stored.format == kind
    assert stored.restore().tolist() == numbers.tolist()
    transposed = files.stored(SourcePart("a", (3, 2), transposed=True))
    assert transposed.format == kind
    assert transposed.restore().tolist() == numbers.T.tolist()
    assert files.stored(SourcePart("v", (3,))) is None


def test_float64_is_stored_as_float32(tmp_path):
    save_file({"a": torch.tensor([[0.5, 1.0]], dtype=torch.float64)}, tmp_path / "model.safetensors")
    stored = open_safetensors(tmp_path).stored(SourcePart("a", (1, 2)))
    assert (stored.format, stored.restore().tolist()) == (F32, [[0.5, 1.0]])


def test_writing_to_a_tensor_does_not_change_the_file(folder):
    open_safetensors(folder).tensor("b").fill_(7.0)
    assert open_safetensors(folder).tensor("b").tolist() == [1.0, 1.0]


def test_shards_are_read_together(sharded):
    files = open_safetensors(sharded({"a": "model-1.safetensors", "b": "model-2.safetensors"}))
    assert files.shapes == {"a": (2,), "b": (3,)}


@pytest.mark.parametrize(
    ("weight_map", "error", "message"),
    [
        ({"a": "model-3.safetensors"}, FileNotFoundError, r"model-3\.safetensors: this shard is missing"),
        ({"b": "model-1.safetensors"}, ValueError, r"model-1\.safetensors: tensor 'b' is missing"),
        ({"a": "../model-1.safetensors"}, ValueError, "not the name of a file in the same folder"),
        ({"a": "..\\model-1.safetensors"}, ValueError, "not the name of a file in the same folder"),
        ({"a": 3}, ValueError, "weight_map must map tensor names to file names"),
        (["a"], ValueError, "weight_map must map tensor names to file names"),
    ],
)
def test_index_path_traversal_and_wrong_indexes_are_rejected(sharded, weight_map, error, message):
    with pytest.raises(error, match=message):
        open_safetensors(sharded(weight_map))


@pytest.mark.parametrize("keep", [0, 4, 60, -1])
def test_truncated_safetensors_are_rejected(folder, keep):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"model\.safetensors: not a complete safetensors file"):
        open_safetensors(folder)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "weights.pth"])
def test_pickle_weights_are_never_opened(tmp_path, name):
    (tmp_path / name).mkdir()  # a folder: to open it would be another error
    with pytest.raises(ValueError, match=rf"only as {name}: pickles can run code.*convert it: python -c"):
        open_safetensors(tmp_path)


def test_a_folder_without_weights_is_rejected(tmp_path):
    with pytest.raises(FileNotFoundError, match="the folder has no weights"):
        open_safetensors(tmp_path)


def test_integer_tensors_are_rejected(tmp_path):
    save_file({"a": torch.ones(2, dtype=torch.int64)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="'a' is stored as I64; readable are F64, F32, F16, BF16"):
        open_safetensors(tmp_path).tensor("a")


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_tensors_that_are_not_finite_are_rejected(tmp_path, bad):
    save_file({"a": torch.tensor([0.0, bad, 1.0])}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="'a' holds NaN or infinity"):
        open_safetensors(tmp_path).fill(SourcePart("a", (3,)), torch.empty(3))
    save_file({"a": torch.tensor([[0.0, bad, 1.0]]).half()}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="'a' holds NaN or infinity"):
        open_safetensors(tmp_path).stored(SourcePart("a", (1, 3)))
