"""docs/tiny.py, the library in one file, writes the same texts as the library."""

import importlib.util
from pathlib import Path

import pytest

import unspool as us

PROMPTS = ("The old lighthouse keeper", 'In 1984, she\'d said: "No!"', "def f(x):\n    return x")


@pytest.fixture(scope="module")
def tiny():
    path = Path(__file__).parents[2] / "docs/tiny.py"
    spec = importlib.util.spec_from_file_location("tiny", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def both(tiny):
    return tiny.Llama(tiny.smollm2()), us.load("smollm2")


@pytest.mark.parametrize("text", [*PROMPTS, "  two  spaces\n\n\ttab_and_line ", "naïve café — 日本語 🙂", ""])
def test_tiny_encodes_and_decodes_text_as_the_library_does(both, text):
    small, model = both
    ids = small.tokenizer.encode(text)
    assert ids == list(model.tokenizer.encode(text))
    assert small.tokenizer.decode(ids) == text


@pytest.mark.parametrize("prompt", PROMPTS[:2])
def test_tiny_writes_the_same_greedy_text(tiny, both, prompt):
    small, model = both
    out = us.generate(model, prompt, us.Greedy(), max_new_tokens=16)
    assert tiny.greedy(small, small.tokenizer.encode(prompt), 16) == list(out.tokens)


@pytest.mark.parametrize("seed", range(2))
def test_tiny_draws_the_same_samples(tiny, both, seed):
    small, model = both
    decoder = us.Sample(us.Temperature(0.8), us.TopP(0.9))
    out = us.generate(model, PROMPTS[0], decoder, max_new_tokens=16, seed=seed)
    rules = [tiny.temperature(0.8), tiny.top_p(0.9)]
    assert tiny.sample(small, small.tokenizer.encode(PROMPTS[0]), 16, rules, seed) == list(out.tokens)


def test_tiny_finds_the_same_beam(tiny, both):
    small, model = both
    out = us.generate(model, PROMPTS[0], us.Beam(3), max_new_tokens=10)
    assert tiny.beam(small, small.tokenizer.encode(PROMPTS[0]), 10, 3) == list(out.tokens)
