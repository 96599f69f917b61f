import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

import unspool as us
from peers.gguf_writing import LlamaShape, requantise, write_random_llama
from unspool.models.loading.gguf_file import open_gguf

SHAPE = LlamaShape(layers=2, width=64, heads=4, key_value_heads=2, inner_width=96, vocab_size=300, context=64)


@pytest.fixture
def tiny(tmp_path):
    write_random_llama(tmp_path / "tiny.gguf", SHAPE, Type.Q8_0)
    return tmp_path / "tiny.gguf"


@pytest.mark.parametrize("kind", [Type.Q8_0, Type.Q4_0])
def test_random_weights_are_a_model(tmp_path, kind):
    write_random_llama(tmp_path / "tiny.gguf", SHAPE, kind)
    model = us.load(tmp_path / "tiny.gguf")
    c = model.config
    assert (c.layers, c.width, c.heads, c.kv_heads, c.inner_width) == (2, 64, 4, 2, 96)
    assert (c.vocab_size, c.context, c.tied) == (300, 64, False)
    weight = model.blocks[0].feed_forward.down.weight.detach()
    assert float(weight.std()) == pytest.approx(96**-0.5, rel=0.03)
    out = us.generate(model, "word1 word2", us.Greedy(), max_new_tokens=4)
    assert len(out.tokens) <= 4
    assert all(np.isfinite(out.logps))


def test_the_same_seed_makes_the_same_file(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_random_llama(tmp_path / name, SHAPE, Type.Q4_0, seed)
    a, b, c = ((tmp_path / name).read_bytes() for name in "abc")
    assert a == b != c


def test_a_billion_weights_are_named_before_they_are_drawn():
    count = sum(int(np.prod(size)) for _, size in LlamaShape().tensors())
    assert count == pytest.approx(1.1e9, rel=0.01)


def test_requantised_weights_are_the_same_to_the_type_s_precision(tiny, tmp_path):
    before = us.load(tiny).state_dict()
    # half of a block's step, at most: the largest of 32 numbers is at most √3 deviations, over 127 or 8 steps
    for kind, steps in ((Type.F32, None), (Type.Q8_0, 127), (Type.Q4_0, 8)):
        path = tmp_path / f"{kind.name}.gguf"
        requantise(tiny, path, kind)
        after = us.load(path).state_dict()
        assert after.keys() == before.keys()
        for name, weight in before.items():
            error = float((after[name] - weight).abs().max())
            assert error <= (0.0 if steps is None else float(weight.abs().max()) / steps * 1.01), (kind, name)


def test_requantising_changes_types_and_nothing_else(tiny, tmp_path):
    requantise(tiny, tmp_path / "q4.gguf", Type.Q4_0)
    old, new = open_gguf(tiny), open_gguf(tmp_path / "q4.gguf")
    assert list(old.tensors) == list(new.tensors)
    types = {name: Type(tensor.quantisation) for name, tensor in new.tensors.items()}
    assert types["blk.1.ffn_up.weight"] == Type.Q4_0
    assert types["token_embd.weight"] == types["output.weight"] == Type.Q8_0  # as llama.cpp does
    assert types["output_norm.weight"] == Type.F32
    assert old.metadata | {"general.file_type": 2} == new.metadata


def test_float32_weights_write_the_text_of_the_original(tiny, tmp_path):
    requantise(tiny, tmp_path / "f32.gguf", Type.F32)
    texts = [
        us.generate(us.load(path), [1, 270, 280], us.Greedy(), max_new_tokens=8).tokens
        for path in (tiny, tmp_path / "f32.gguf")
    ]
    assert texts[0] == texts[1]
