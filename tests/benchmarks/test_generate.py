"""Prompts of one length."""

import importlib.util
from pathlib import Path

import pytest
from gguf import GGMLQuantizationType as Type

from peers.gguf_writing import LlamaShape, write_random_llama


@pytest.fixture(scope="module")
def generate():
    path = Path(__file__).resolve().parents[2] / "benchmarks/generate.py"
    spec = importlib.util.spec_from_file_location("benchmarks_generate", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_prompts_have_one_length(generate, tmp_path):
    shape = LlamaShape(layers=1, width=64, heads=4, key_value_heads=2, inner_width=64, vocab_size=300)
    write_random_llama(tmp_path / "tiny.gguf", shape, Type.Q8_0)
    for length in (7, 300):
        prompts = generate.prompts_of(tmp_path / "tiny.gguf", length)
        assert [len(prompt) for prompt in prompts] == [length] * 8
