from dataclasses import dataclass, field

import pytest
import torch

from unspool.engine.stored_weights import StoredWeight
from unspool.engine.weight_formats import F16, F32, INT8
from unspool.models.loading.weight_layout import SourcePart, TargetTensor
from unspool.models.loading.weights import READERS, parse_weights


@dataclass
class Drawer:
    """Tensors in memory, of which only some types can be used as they are."""

    tensors: dict[str, torch.Tensor]
    filled: list[int] = field(default_factory=list)
    put_back: list[str] = field(default_factory=list)
    label: str = "drawer"

    @property
    def shapes(self):
        return {name: tuple(tensor.shape) for name, tensor in self.tensors.items()}

    def stored(self, piece):
        kinds = {torch.float32: F32, torch.float16: F16}
        tensor = self.tensors[piece.source]
        if tensor.dtype not in kinds or tensor.dim() != 2:
            return None
        return StoredWeight(kinds[tensor.dtype], tensor.view(torch.uint8), tuple(tensor.shape))

    def fill(self, piece, out):
        self.filled.append(out.numel())
        out.copy_(self.tensors[piece.source])

    def let_go(self, piece):
        self.put_back.append(piece.source)


@pytest.fixture
def drawer():
    torch.manual_seed(0)
    return Drawer(
        {
            "single": torch.randn(2, 4),
            "half": torch.randn(3, 4).half(),
            "double": torch.randn(3, 4).double(),
            "norm": torch.randn(4),
            "beta": torch.tensor(0.5),
        }
    )


def target(drawer, *names, matrix=True):
    parts = tuple(SourcePart(name, drawer.shapes[name]) for name in names)
    if len(parts) == 1:
        return TargetTensor("x.weight", parts[0].shape, parts, matrix)
    return TargetTensor("x.weight", (sum(part.shape[0] for part in parts), 4), parts, matrix)


def test_float32_in_one_piece_is_not_copied(drawer):
    for way in ("float32", "stored"):
        kept = READERS[way](drawer, target(drawer, "single"))
        assert kept.data_ptr() == drawer.tensors["single"].data_ptr()
    assert drawer.filled == []


def test_float32_of_several_pieces_is_stacked(drawer):
    kept = READERS["float32"](drawer, target(drawer, "single", "half", "double"))
    assert kept.dtype == torch.float32
    assert torch.equal(
        kept, torch.cat([drawer.tensors[name].float() for name in ("single", "half", "double")])
    )


def test_as_stored(drawer):
    kept = READERS["stored"](drawer, target(drawer, "single", "half", "double"))
    assert [piece.format for piece in kept] == [F32, F16, INT8]  # there is no way to multiply float64
    assert [piece.packed.data_ptr() for piece in kept[:2]] == [
        drawer.tensors[name].data_ptr() for name in ("single", "half")
    ]
    torch.testing.assert_close(kept[2].restore(), drawer.tensors["double"].float(), atol=0.02, rtol=0)


def test_int8_is_made_of_what_is_stored_and_of_float32_where_that_cannot_be(drawer):
    kept = READERS["int8"](drawer, target(drawer, "single", "half", "double"))
    assert [(piece.format, piece.shape) for piece in kept] == [(INT8, (2, 4)), (INT8, (3, 4)), (INT8, (3, 4))]
    assert drawer.filled == [12]
    assert drawer.put_back == ["single", "half"]


@pytest.mark.parametrize("way", READERS)
def test_vectors_and_what_is_no_matrix_are_float32(drawer, way):
    assert torch.equal(READERS[way](drawer, target(drawer, "norm", matrix=False)), drawer.tensors["norm"])
    assert READERS[way](drawer, target(drawer, "beta", matrix=False)).item() == 0.5
    positions = READERS[way](drawer, target(drawer, "half", matrix=False))
    assert torch.equal(positions, drawer.tensors["half"].float())


@pytest.mark.parametrize("way", READERS)
def test_a_missing_bias_is_zero(drawer, way):
    nothing = TargetTensor("x.bias", (6,), (SourcePart(None, (4,)), SourcePart(None, (2,))))
    assert READERS[way](drawer, nothing).tolist() == [0.0] * 6
    assert READERS[way](drawer, TargetTensor("x.bias", (4,), (SourcePart(None, (4,)),))).tolist() == [0.0] * 4


def test_names():
    assert [parse_weights(name) for name in (None, *READERS)] == ["float32", *READERS]
    with pytest.raises(
        ValueError, match="weights 'int4' is unknown: choose from 'stored', 'float32', 'int8'"
    ):
        parse_weights("int4")
