import subprocess
import sys
from dataclasses import dataclass, field, replace

import pytest
import torch

from unspool.models.loading.assembly import build_model, errors_with_label
from unspool.models.loading.causal_families import LLAMA
from unspool.models.loading.weight_layout import WeightLayout
from unspool.models.transformer_lm import TransformerConfig, TransformerLM

CONFIG = TransformerConfig(
    vocab_size=7, width=4, layers=1, heads=2, kv_heads=1, head_width=2, inner_width=3, context=8, bias=True
)
LAYOUT = WeightLayout(
    LLAMA.names, ignored=r"junk\..*", unbiased=frozenset({"feed_forward.up", "feed_forward.down"})
)


@dataclass
class MemorySource:
    """Tensors in memory as a TensorSource."""

    tensors: dict[str, torch.Tensor]
    filled: list[str] = field(default_factory=list)
    label: str = "source"

    @property
    def shapes(self):
        return {name: tuple(tensor.shape) for name, tensor in self.tensors.items()}

    def stored(self, part):
        return None

    def fill(self, part, out):
        self.filled.append(part.source)
        out.copy_(self.tensors[part.source])


@pytest.fixture
def source():
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
    return MemorySource({name: torch.randn(shape) for name, shape in shapes.items()})


def read_weights(source, weights="float32"):
    return build_model(CONFIG, source, LAYOUT, weights=weights).state_dict()


def test_parts_are_stacked_in_order(source):
    state = read_weights(source)
    parts = [source.tensors[f"model.layers.0.self_attn.{x}_proj.weight"] for x in "qkv"]
    torch.testing.assert_close(state["blocks.0.attention.qkv.weight"], torch.cat(parts), rtol=0, atol=0)
    assert state["blocks.0.feed_forward.up.bias"].tolist() == [0.0] * 6
    assert sorted(source.filled) == sorted(name for name in source.tensors if name != "junk.mask")


def test_errors_are_labelled_once():
    with pytest.raises(ValueError, match=r"^source: too wide$"), errors_with_label("source"):
        raise ValueError("too wide")
    with pytest.raises(ValueError, match=r"^source: too wide$"), errors_with_label("source"):
        raise ValueError("source: too wide")


def test_a_missing_tensor_is_reported_with_similar_names(source):
    source.tensors["model.norms.weight"] = source.tensors.pop("model.norm.weight")
    with pytest.raises(
        ValueError,
        match=r"source: tensor 'model\.norm\.weight' of shape \[4\] is missing; similar names: model\.norms",
    ):
        read_weights(source)
    assert source.filled == []


def test_tensor_names_cannot_inject_terminal_escapes(source):
    source.tensors["model.norm\n\x1b[2Jweight"] = source.tensors.pop("model.norm.weight")
    with pytest.raises(ValueError, match=r"similar names: model\.norm\\n\\x1b\[2Jweight, "):
        read_weights(source)


def test_a_wrong_shape_is_reported(source):
    source.tensors["model.norm.weight"] = torch.zeros(5)
    with pytest.raises(
        ValueError, match=r"'model\.norm\.weight' has shape \[5\]; the configuration asks for \[4\]"
    ):
        read_weights(source)


def test_unexpected_tensors_are_reported(source):
    source.tensors |= {f"model.layers.0.extra.{i}": torch.zeros(1) for i in range(7)}
    with pytest.raises(
        ValueError, match=r"unexpected tensors .*extra\.0, .* and 2 more: .*another kind of model"
    ):
        read_weights(source)


def test_errors_while_reading_are_passed_on(source):
    def fail(piece, out):
        raise ValueError(f"{piece.source} is rotten")

    source.fill = fail
    with pytest.raises(ValueError, match="is rotten"):
        read_weights(source)


def test_build_model_does_not_initialise(source):
    before = torch.get_rng_state()
    model = build_model(CONFIG, source, LAYOUT)
    assert torch.equal(torch.get_rng_state(), before)
    assert not model.training
    assert all(parameter.requires_grad for parameter in model.parameters())
    reference = TransformerLM(CONFIG).eval()
    reference.load_state_dict(model.state_dict())
    tokens_NT = torch.tensor([[1, 2, 3]])
    torch.testing.assert_close(model(tokens_NT), reference(tokens_NT), rtol=0, atol=0)


def test_build_model_with_stored_weights(source):
    model = build_model(CONFIG, source, LAYOUT, weights="int8")
    assert [piece.shape for piece in model.blocks[0].attention.qkv.pieces] == [(4, 4), (2, 4), (2, 4)]
    assert torch.equal(model.norm.weight, source.tensors["model.norm.weight"])
    assert not any(parameter.requires_grad for parameter in model.parameters())
    reference = TransformerLM(CONFIG).eval()
    reference.load_state_dict(model.state_dict())
    tokens_NT = torch.tensor([[1, 2, 3]])
    torch.testing.assert_close(model(tokens_NT), reference(tokens_NT))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("norm.weight"), r"source: tensor 'norm\.weight' of shape \[4\] is missing"),
        (lambda state: state.update(extra=torch.zeros(1)), "unexpected tensors extra"),
        (
            lambda state: state.update({"norm.weight": torch.zeros(3)}),
            r"'norm\.weight' has shape \[3\].*\[4\]",
        ),
    ],
)
def test_a_file_with_our_names_needs_no_layout(source, change, message):
    ours = MemorySource(read_weights(source))
    model = build_model(CONFIG, ours)
    assert all(torch.equal(it, ours.tensors[name]) for name, it in model.state_dict().items())
    change(ours.tensors)
    with pytest.raises(ValueError, match=message):
        build_model(CONFIG, ours)


def test_a_tokenizer_with_more_tokens_than_the_model_is_rejected(source):
    class Text:
        vocab_size = 8
        encode = decode = detokenizer = None
        eos_ids = frozenset()

    with pytest.raises(ValueError, match="the tokenizer has 8 tokens, the model only 7"):
        build_model(CONFIG, source, LAYOUT, Text())
    Text.vocab_size = 7
    assert build_model(CONFIG, source, LAYOUT, Text()).tokenizer.vocab_size == 7


def test_building_on_meta_does_not_import_torchs_compiler():
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


def test_config_layer_bomb_is_rejected_before_building():
    huge = replace(CONFIG, layers=2**31 - 1)
    with pytest.raises(ValueError, match="source: layers=2147483647, but the file holds 1 tensors"):
        build_model(huge, MemorySource({"embed.weight": torch.zeros(1)}))


def test_config_size_overflow_is_rejected():
    huge = replace(CONFIG, vocab_size=2**31 - 1, width=2**31 - 2)
    with pytest.raises(ValueError, match="source: no model of this shape can be built"):
        build_model(huge, MemorySource({"embed.weight": torch.zeros(1)}))
