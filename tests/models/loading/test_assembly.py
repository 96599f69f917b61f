import subprocess
import sys
from dataclasses import dataclass, field, replace

import pytest
import torch

from unspool.models.loading.assembly import build_model, errors_with_label, read_weights
from unspool.models.loading.llama_families import LLAMA
from unspool.models.loading.weight_layout import WeightLayout
from unspool.models.transformer_lm import TransformerConfig, TransformerLM

CONFIG = TransformerConfig(
    vocab_size=7, width=4, layers=1, heads=2, kv_heads=1, head_width=2, inner_width=3, context=8, bias=True
)
DIALECT = WeightLayout(
    LLAMA.names, ignored=r"junk\..*", unbiased=frozenset({"feed_forward.up", "feed_forward.down"})
)


@dataclass
class Shelf:
    """Tensors in memory, as a source."""

    tensors: dict[str, torch.Tensor]
    filled: list[str] = field(default_factory=list)
    label: str = "shelf"

    @property
    def shapes(self):
        return {name: tuple(tensor.shape) for name, tensor in self.tensors.items()}

    def stored(self, piece):
        return None

    def fill(self, piece, out):
        self.filled.append(piece.source)
        out.copy_(self.tensors[piece.source])


@pytest.fixture
def shelf():
    layer = "model.layers.0"
    shapes = {
        "model.embed_tokens.weight": (7, 4),
        "model.norm.weight": (4,),
        f"{layer}.input_layernorm.weight": (4,),
        f"{layer}.self_attn.q_proj.weight": (4, 4),
        f"{layer}.self_attn.q_proj.bias": (4,),
        f"{layer}.self_attn.k_proj.weight": (2, 4),
        f"{layer}.self_attn.k_proj.bias": (2,),
        f"{layer}.self_attn.v_proj.weight": (2, 4),
        f"{layer}.self_attn.v_proj.bias": (2,),
        f"{layer}.self_attn.o_proj.weight": (4, 4),
        f"{layer}.self_attn.o_proj.bias": (4,),
        f"{layer}.post_attention_layernorm.weight": (4,),
        f"{layer}.mlp.gate_proj.weight": (3, 4),
        f"{layer}.mlp.up_proj.weight": (3, 4),
        f"{layer}.mlp.down_proj.weight": (4, 3),
        "junk.mask": (9, 9),
    }
    torch.manual_seed(0)
    return Shelf({name: torch.randn(shape) for name, shape in shapes.items()})


def test_pieces_are_stacked_in_order(shelf):
    state = read_weights(shelf, CONFIG, DIALECT)
    parts = [shelf.tensors[f"model.layers.0.self_attn.{x}_proj.weight"] for x in "qkv"]
    torch.testing.assert_close(state["blocks.0.attention.qkv.weight"], torch.cat(parts), rtol=0, atol=0)
    assert state["blocks.0.feed_forward.up.bias"].tolist() == [0.0] * 6
    assert sorted(shelf.filled) == sorted(name for name in shelf.tensors if name != "junk.mask")


def test_what_is_wrong_is_told_with_its_file_once():
    with pytest.raises(ValueError, match=r"^shelf: too wide$"), errors_with_label("shelf"):
        raise ValueError("too wide")
    with pytest.raises(ValueError, match=r"^shelf: too wide$"), errors_with_label("shelf"):
        raise ValueError("shelf: too wide")


def test_a_missing_tensor_is_named_with_its_neighbours(shelf):
    shelf.tensors["model.norms.weight"] = shelf.tensors.pop("model.norm.weight")
    with pytest.raises(
        ValueError,
        match=r"shelf: tensor 'model\.norm\.weight' of shape \[4\] is missing; there are model\.norms",
    ):
        read_weights(shelf, CONFIG, DIALECT)
    assert shelf.filled == []


def test_a_name_cannot_break_the_line_of_a_message(shelf):
    shelf.tensors["model.norm\n\x1b[2Jweight"] = shelf.tensors.pop("model.norm.weight")
    with pytest.raises(ValueError, match=r"there are model\.norm\\n\\x1b\[2Jweight, "):
        read_weights(shelf, CONFIG, DIALECT)


def test_a_wrong_shape_is_named(shelf):
    shelf.tensors["model.norm.weight"] = torch.zeros(5)
    with pytest.raises(
        ValueError, match=r"'model\.norm\.weight' has shape \[5\]; the configuration asks for \[4\]"
    ):
        read_weights(shelf, CONFIG, DIALECT)


def test_a_tensor_too_many_is_named(shelf):
    shelf.tensors |= {f"model.layers.0.extra.{i}": torch.zeros(1) for i in range(7)}
    with pytest.raises(
        ValueError, match=r"without a place in the model.*extra\.0, .* and 2 more; .*another kind of model"
    ):
        read_weights(shelf, CONFIG, DIALECT)


def test_an_error_while_filling_comes_through(shelf):
    def fail(piece, out):
        raise ValueError(f"{piece.source} is rotten")

    shelf.fill = fail
    with pytest.raises(ValueError, match="is rotten"):
        read_weights(shelf, CONFIG, DIALECT)


def test_build_neither_copies_nor_draws(shelf):
    state = read_weights(shelf, CONFIG, DIALECT)
    before = torch.get_rng_state()
    model = build_model(CONFIG, state, None, "shelf")
    assert torch.equal(torch.get_rng_state(), before)
    assert not model.training
    for name, parameter in model.named_parameters():
        assert parameter.data_ptr() == state[name].data_ptr()
        assert parameter.requires_grad
    twin = TransformerLM(CONFIG).eval()
    twin.load_state_dict(state)
    tokens_NT = torch.tensor([[1, 2, 3]])
    torch.testing.assert_close(model(tokens_NT), twin(tokens_NT), rtol=0, atol=0)


def test_build_around_weights_that_stay_as_they_are(shelf):
    state = read_weights(shelf, CONFIG, DIALECT, "int8")
    model = build_model(CONFIG, state, None, "shelf")
    assert model.blocks[0].attention.qkv.pieces is state["blocks.0.attention.qkv.weight"]
    assert [piece.shape for piece in model.blocks[0].attention.qkv.pieces] == [(4, 4), (2, 4), (2, 4)]
    assert torch.equal(model.blocks[0].attention.qkv.bias, state["blocks.0.attention.qkv.bias"])
    assert torch.equal(model.norm.weight, state["norm.weight"])
    assert not any(parameter.requires_grad for parameter in model.parameters())
    twin = TransformerLM(CONFIG).eval()
    twin.load_state_dict(model.state_dict())
    tokens_NT = torch.tensor([[1, 2, 3]])
    torch.testing.assert_close(model(tokens_NT), twin(tokens_NT))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("norm.weight"), r"shelf: tensors are missing: norm\.weight"),
        (lambda state: state.update(extra=torch.zeros(1)), "without a place in the model: extra"),
        (
            lambda state: state.update({"norm.weight": torch.zeros(3)}),
            r"'norm\.weight' has shape \[3\].*\[4\]",
        ),
    ],
)
def test_build_refuses_a_state_that_does_not_fit(shelf, change, message):
    state = read_weights(shelf, CONFIG, DIALECT)
    change(state)
    with pytest.raises(ValueError, match=message):
        build_model(CONFIG, state, None, "shelf")


def test_a_tokenizer_of_another_model_is_refused(shelf):
    class Text:
        vocab_size = 8
        encode = decode = detokenizer = None
        eos_ids = frozenset()

    state = read_weights(shelf, CONFIG, DIALECT)
    with pytest.raises(ValueError, match="the tokenizer knows 8 tokens, the model only 7"):
        build_model(CONFIG, state, Text(), "shelf")
    Text.vocab_size = 7
    assert build_model(CONFIG, state, Text(), "shelf").tokenizer.vocab_size == 7


def test_building_does_not_import_torchs_compiler():
    code = (
        "import sys, torch\n"
        "from unspool.models.loading.assembly import _SkipInit\n"
        "from unspool.models.transformer_lm import TransformerConfig, TransformerLM\n"
        "with torch.device('meta'), _SkipInit():\n"
        "    TransformerLM(TransformerConfig(vocab_size=9, width=8, layers=1, heads=2, kv_heads=2, head_width=4, inner_width=8, context=16, tied=False, bias=True, norm='layer'))\n"
        "print([name for name in ('torch._dynamo', 'sympy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_more_layers_than_tensors_are_refused_before_one_is_built():
    huge = replace(CONFIG, layers=2**31 - 1)
    with pytest.raises(ValueError, match="shelf: layers=2147483647, but the file holds 1 tensors"):
        build_model(huge, {"embed.weight": torch.zeros(1)}, None, "shelf")


def test_a_shape_beyond_every_memory_is_refused():
    huge = replace(CONFIG, vocab_size=2**31 - 1, width=2**31 - 2)
    with pytest.raises(ValueError, match="shelf: no model of this shape can be built"):
        build_model(huge, {"embed.weight": torch.zeros(1)}, None, "shelf")
