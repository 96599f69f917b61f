import copy
import subprocess
import sys
from dataclasses import dataclass, field

import pytest
import torch

from unspool.engine.stored_softmax import StoredSoftmax, TiedStoredSoftmax
from unspool.engine.stored_weights import StoredEmbedding, StoredLinear, StoredWeight, quantise_int8
from unspool.engine.weight_formats import F16, F32, INT8
from unspool.heads import HEADS
from unspool.models import TransformerConfig
from unspool.models.loading.run_folder import load_folder, save
from unspool.models.loading.weight_layout import SourcePart, TargetTensor
from unspool.models.loading.weights import (
    MEMORY_ADVICE,
    WEIGHT_FORMATS,
    install_stored_weights,
    memory_errors,
    parse_device,
    parse_dtype,
    parse_weights,
    read_weight,
    storable_weights,
)


@dataclass
class MemorySource:
    """Tensors in memory, of which only some dtypes have a kernel."""

    tensors: dict[str, torch.Tensor]
    filled: list[int] = field(default_factory=list)
    released: list[str] = field(default_factory=list)
    label: str = "source"

    @property
    def shapes(self):
        return {name: tuple(tensor.shape) for name, tensor in self.tensors.items()}

    def stored(self, part):
        kinds = {torch.float32: F32, torch.float16: F16}
        tensor = self.tensors[part.source]
        if tensor.dtype not in kinds or tensor.dim() != 2:
            return None
        return StoredWeight(kinds[tensor.dtype], tensor.view(torch.uint8), tuple(tensor.shape))

    def fill(self, part, out):
        self.filled.append(out.numel())
        out.copy_(self.tensors[part.source])

    def release(self, part):
        self.released.append(part.source)


@pytest.fixture
def source():
    torch.manual_seed(0)
    return MemorySource(
        {
            "single": torch.randn(2, 4),
            "half": torch.randn(3, 4).half(),
            "double": torch.randn(3, 4).double(),
            "norm": torch.randn(4),
            "beta": torch.tensor(0.5),
        }
    )


def read(source, weights, *names, matrix=True):
    parts = tuple(SourcePart(name, source.shapes[name]) for name in names)
    shape = parts[0].shape if len(parts) == 1 else (sum(part.shape[0] for part in parts), 4)
    return read_weight(source, TargetTensor("x.weight", shape, parts), weights, is_matrix=matrix)


def test_float32_of_one_part_is_not_copied(source):
    for way in ("float32", "stored"):
        result = read(source, way, "single")
        assert result.data_ptr() == source.tensors["single"].data_ptr()
    assert source.filled == []


def test_float32_of_several_parts_is_stacked(source):
    result = read(source, "float32", "single", "half", "double")
    assert result.dtype == torch.float32
    assert torch.equal(
        result, torch.cat([source.tensors[name].float() for name in ("single", "half", "double")])
    )


def test_stored_weights_keep_their_format(source):
    result = read(source, "stored", "single", "half", "double")
    assert [piece.format for piece in result] == [F32, F16, INT8]  # there is no way to multiply float64
    assert [piece.packed.data_ptr() for piece in result[:2]] == [
        source.tensors[name].data_ptr() for name in ("single", "half")
    ]
    torch.testing.assert_close(result[2].restore(), source.tensors["double"].float(), atol=0.02, rtol=0)


def test_int8_weights_are_requantised(source):
    result = read(source, "int8", "single", "half", "double")
    assert [(piece.format, piece.shape) for piece in result] == [
        (INT8, (2, 4)),
        (INT8, (3, 4)),
        (INT8, (3, 4)),
    ]
    assert source.filled == [12]
    assert source.released == ["single", "half"]


@pytest.mark.parametrize("way", WEIGHT_FORMATS)
def test_vectors_are_float32(source, way):
    assert torch.equal(read(source, way, "norm", matrix=False), source.tensors["norm"])
    assert read(source, way, "beta", matrix=False).item() == 0.5
    positions = read(source, way, "half", matrix=False)
    assert torch.equal(positions, source.tensors["half"].float())


@pytest.mark.parametrize("way", WEIGHT_FORMATS)
def test_a_missing_bias_is_zero(source, way):
    nothing = TargetTensor("x.bias", (6,), ())
    assert read_weight(source, nothing, way, is_matrix=False).tolist() == [0.0] * 6


def test_weight_format_names():
    assert [parse_weights(name) for name in (None, *WEIGHT_FORMATS)] == [None, *WEIGHT_FORMATS]
    with pytest.raises(ValueError, match="weights is 'int4', but must be one of 'float32', 'int8', 'stored'"):
        parse_weights("int4")


V = 7
LM = TransformerConfig(
    vocab_size=V, width=16, layers=2, heads=4, kv_heads=2, head_width=4, inner_width=24, context=32
)
PROMPTS = [[3, 4, 5, 6], [4], [6, 3, 3]]


def int8(model):
    """A model with int8 weights, and one with the same weights in float32."""
    small = copy.deepcopy(model)
    state = model.state_dict()
    install_stored_weights(small, {name: (quantise_int8(state[name]),) for name in storable_weights(small)})
    reference = copy.deepcopy(model)
    reference.load_state_dict(small.state_dict())
    return small.eval(), reference.eval()


def test_modules_are_replaced_by_stored_ones():
    small, _ = int8(LM.build())
    assert type(small.embed) is StoredEmbedding
    assert {type(part) for name, part in small.named_modules() if name.endswith((".qkv", ".down"))} == {
        StoredLinear
    }
    assert type(small.head) is TiedStoredSoftmax
    assert small.head.pieces is small.embed.pieces
    untied, _ = int8(TransformerConfig(**{**vars(LM), "tied": False}).build())
    assert type(untied.head) is StoredSoftmax


@pytest.mark.parametrize(("engine", "atol"), [("torch", 1e-5), (None, 3e-3)], ids=["torch", "default engine"])
def test_stored_weights_give_equal_log_probabilities_in_every_model(any_speaker, engine, atol):
    """The compiled engine rounds the activations of quantised products to 16 bits, and keys and values to float16."""
    small, reference = int8(any_speaker.model)
    small.engine = engine
    assert not any(parameter.requires_grad for parameter in small.parameters())
    steps = []
    for model in (small, reference):
        step, state = model.start(PROMPTS)
        log_probabilities = [step.logp_NV]
        for token in (3, 5):
            step, state = model.step(state.select(torch.tensor([2, 0, 0])), torch.tensor([token] * 3))
            log_probabilities.append(step.logp_NV)
        steps.append(torch.stack(log_probabilities))
    torch.testing.assert_close(*steps, atol=atol, rtol=1e-5)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("head", HEADS)
def test_stored_weights_give_equal_log_probabilities_in_every_head(head, tied):
    torch.manual_seed(0)
    options = {} if head == "kerbs" else {"tied": tied, "bias": True}
    model = TransformerConfig(**{**vars(LM), "head": HEADS[head](**options)}).build().eval()
    small, reference = int8(model)
    tokens = torch.tensor([[1, 2, 3], [4, 5, 6]])
    with torch.no_grad():
        torch.testing.assert_close(small(tokens), reference(tokens), atol=1e-5, rtol=1e-5)
    if reference.output_matrix is not None:
        torch.testing.assert_close(small.output_matrix, reference.output_matrix)


def test_a_stored_model_is_saved_as_float32(any_speaker, tmp_path):
    small, _ = int8(any_speaker.model)
    save(small, tmp_path / "run")
    again = load_folder(tmp_path / "run")
    assert storable_weights(again) == storable_weights(any_speaker.model)
    small.engine = "torch"  # the compiled engine rounds activations beside quantised weights
    want, got = (model.start(PROMPTS)[0].logp_NV for model in (small, again))
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)


def test_a_copy_shares_the_stored_weights():
    small, _ = int8(LM.build())
    reference = copy.deepcopy(small)
    assert reference.blocks[0].attention.qkv.pieces[0] is small.blocks[0].attention.qkv.pieces[0]
    assert reference.head._embed[0] is reference.embed
    assert torch.equal(reference.start(PROMPTS)[0].logp_NV, small.start(PROMPTS)[0].logp_NV)


def test_training_stored_weights_is_rejected():
    small, _ = int8(LM.build())
    with pytest.raises(RuntimeError, match='load the model with weights="float32"'):
        small.train()(torch.tensor([[1, 2, 3]]))


def test_no_stored_weights_change_nothing():
    model = LM.build()
    install_stored_weights(model, {})
    assert all(parameter.requires_grad for parameter in model.parameters())


CHILD = """
import resource, sys
import unspool as us
us.load, us.load("bible")  # whatever is imported, is by now
resource.setrlimit(resource.RLIMIT_AS, (int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize(),) * 2)
try:
    us.load(sys.argv[1], weights=sys.argv[2])
except MemoryError as error:
    print(error)
"""


@pytest.mark.parametrize("weights", WEIGHT_FORMATS)
@pytest.mark.parametrize(
    "shortage",
    [
        MemoryError("Unable to allocate 88.0 MiB for an array"),
        OSError(12, "Cannot allocate memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4456448 bytes"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_out_of_memory_errors_have_one_message(shortage, weights):
    with (
        pytest.raises(MemoryError, match=r"m\.gguf: out of memory") as caught,
        memory_errors("m.gguf", weights),
    ):
        raise shortage
    assert str(caught.value).endswith(MEMORY_ADVICE[weights])
    assert caught.value.__cause__ is shortage


@pytest.mark.parametrize("other", [OSError(2, "No such file"), RuntimeError("shapes"), ValueError("no")])
def test_other_errors_pass_memory_errors(other):
    with pytest.raises(type(other)) as caught, memory_errors("m.gguf", "int8"):
        raise other
    assert caught.value is other


def test_torch_out_of_memory_is_recognised():
    with pytest.raises(MemoryError, match="out of memory"), memory_errors("m", "float32"):
        torch.empty(2**50)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux bounds the memory of a process so")
@pytest.mark.parametrize("weights", ["float32", "stored"])
def test_out_of_memory_in_a_limited_process(weights):
    done = subprocess.run(
        [sys.executable, "-c", CHILD, "smollm2", weights], capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("smollm2: out of memory"), done.stderr


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
def test_dtypes_by_name_or_object(name):
    assert parse_dtype(name) is parse_dtype(getattr(torch, name)) is getattr(torch, name)


@pytest.mark.parametrize("dtype", ["float8", "", "Float32", None, 16, [], torch.int8, torch.complex64, float])
def test_unknown_dtypes_are_rejected(dtype):
    with pytest.raises(ValueError, match=r"^dtype .* is unknown: choose from float32, bfloat16, float16"):
        parse_dtype(dtype)


def test_devices_by_name_or_object():
    assert parse_device("cpu") == parse_device(torch.device("cpu")) == torch.device("cpu")


@pytest.mark.parametrize("name", ["foo", "", "cpu:x", None, [1]])
def test_unknown_devices_are_rejected(name):
    with pytest.raises(ValueError, match=r"^device .* is unknown: .*cpu"):
        parse_device(name)


# No machine has 99 graphics cards.
@pytest.mark.parametrize("name", ["cuda:99", "xpu:99", "hpu:99", torch.device("cuda:99")])
def test_unavailable_devices_are_rejected(name):
    with pytest.raises(ValueError, match=rf"^device '{name}' cannot be used here: .*cpu"):
        parse_device(name)


def test_device_choices_are_those_of_this_machine(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    with pytest.raises(ValueError, match=r"choose from cpu, cuda:0, cuda:1, mps$"):
        parse_device("foo")
