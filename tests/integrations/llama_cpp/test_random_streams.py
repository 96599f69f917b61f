"""Random streams of texts that llama.cpp generates: hash(seed, prompt tokens, sample), as for our own engines.

llama.cpp rounds differently in another batch (docs/llama-cpp.md). UNIFORM makes all tokens equally probable, so
that a text depends on its random stream alone, and texts can be compared between batches.
"""

from random import Random

import numpy as np
import pytest
import torch
from scipy.stats import kstest

import unspool as us
from unspool.decode.rng import stream_key

PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a village by the sea,",
    "The capital of France is",
    "Water boils at",
    "Once upon a time, in a village by the sea,",
]
UNIFORM = us.Sample(us.Temperature(1e9))
REAL = us.Sample(us.TopP(0.95))
ROUNDING = 0.005
"""Of a cumulative probability: llama.cpp's cache is in half precision."""


@pytest.fixture(scope="module")
def model(file):
    return us.load(file, engine="llama.cpp")


@pytest.fixture(scope="module")
def native(file):
    return us.load(file)


def texts(model, prompts, decoder=UNIFORM, **options):
    """The tokens of every text, in order, with all samples of a prompt after each other."""
    options = {"seed": 9, "max_new_tokens": 6, **options}
    found = us.generate(model, prompts, decoder, **options)
    if isinstance(prompts, str):
        found = [found]
    groups = [group if isinstance(group, list) else [group] for group in found]
    return [out.tokens for group in groups for out in group]


def test_a_repeated_prompt_is_its_next_sample(model):
    samples = texts(model, PROMPTS[0], n=4)
    assert len(set(samples)) == 4
    assert texts(model, [PROMPTS[0]] * 2) == samples[:2] == texts(model, PROMPTS[0], n=2)
    assert texts(model, [PROMPTS[0]] * 2, n=2) == samples
    mixed = texts(model, [PROMPTS[0], PROMPTS[1], PROMPTS[0]])
    assert mixed == [samples[0], texts(model, PROMPTS[1])[0], samples[1]]


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (4, 3, 2, 1, 0), (2, 0, 4, 3, 1), (3,), (1, 4)])
@pytest.mark.parametrize("batch_size", [None, 1, 2])
def test_a_prompt_alone_gives_its_first_occurrence_in_any_batch_and_order(model, order, batch_size):
    samples = {prompt: texts(model, prompt, n=2) for prompt in set(PROMPTS)}
    alone = {prompt: texts(model, prompt) for prompt in samples}
    assert all(alone[prompt] == samples[prompt][:1] for prompt in samples)
    options = {} if batch_size is None else {"batch_size": batch_size}
    prompts = [PROMPTS[at] for at in order]
    wanted = [samples[prompt][prompts[:at].count(prompt)] for at, prompt in enumerate(prompts)]
    assert texts(model, prompts, **options) == wanted


def test_a_seed_gives_the_texts_of_the_native_engine(model, native):
    assert texts(model, PROMPTS, n=2) == texts(native, PROMPTS, n=2)


@pytest.mark.parametrize("decoder", [UNIFORM, REAL], ids=["uniform", "real"])
def test_the_same_seed_gives_the_same_texts_and_another_seed_others(model, decoder):
    first, again, other = (texts(model, PROMPTS, decoder, seed=seed) for seed in (9, 9, 10))
    assert first == again
    assert all(one != two for one, two in zip(first, other, strict=True))


@pytest.mark.parametrize("decoder", [UNIFORM, REAL], ids=["uniform", "real"])
def test_without_a_seed_every_call_and_row_differs(model, decoder):
    first, second = (texts(model, [PROMPTS[3]] * 4, decoder, seed=None, max_new_tokens=12) for _ in range(2))
    assert len({*first, *second}) == 8


def test_a_stream_gives_the_texts_of_generate(model):
    heard = {}
    for piece in us.stream(model, PROMPTS, UNIFORM, n=2, seed=9, max_new_tokens=6):
        key = piece.request, piece.sample
        heard[key] = (*heard.get(key, ()), *piece.tokens)
    assert [heard[key] for key in sorted(heard)] == texts(model, PROMPTS, n=2)


@pytest.mark.parametrize(
    ("prompts", "options"),
    [
        pytest.param([[500 + row] for row in range(40)], {"seed": 1}, id="different prompts"),
        pytest.param([[500, 600 + row] for row in range(40)], {"seed": 2}, id="prompts that begin alike"),
        pytest.param([[500]] * 40, {"seed": 3}, id="one prompt again and again"),
        pytest.param([[500]], {"seed": 4, "n": 40}, id="samples"),
    ],
)
def test_rows_of_a_call_are_uniform_and_uncorrelated(model, prompts, options):
    u_NT = (np.array(texts(model, prompts, max_new_tokens=24, **options)) + 0.5) / model.vocab_size
    assert u_NT.shape == (40, 24)
    assert kstest(u_NT.ravel(), "uniform").pvalue > 1e-3
    N, T = u_NT.shape
    r = np.corrcoef(u_NT)[np.triu_indices(N, 1)] * np.sqrt(T - 1)
    assert np.abs(r).max() < 4  # the largest of 780 is above it in one case of three thousand
    assert abs((r**2).mean() - 1) < 0.2  # four standard deviations


def test_each_token_of_the_model_is_drawn_by_the_stream_of_its_row(model, native):
    """u is inside the interval of the token in the cumulative distribution, which another engine computes."""
    found = us.generate(model, PROMPTS, us.Sample(), n=2, seed=5, max_new_tokens=8)
    for at, (prompt, group) in enumerate(zip(PROMPTS, found, strict=True)):
        ids = native.tokenizer.encode(prompt)
        for sample, out in enumerate(group, 2 * PROMPTS[:at].count(prompt)):
            rng = Random(stream_key(5, ids, sample))
            rows = [(*ids, *out.tokens[:place]) for place in range(len(out.tokens))]
            p_TV = native.start(rows)[0].logp_NV.double().softmax(dim=-1)
            upto_T = p_TV.cumsum(dim=-1).gather(1, torch.tensor(out.tokens)[:, None])[:, 0]
            below_T = upto_T - p_TV.gather(1, torch.tensor(out.tokens)[:, None])[:, 0]
            for low, high in zip(below_T.tolist(), upto_T.tolist(), strict=True):
                u = rng.random()
                assert low - ROUNDING < u < high + ROUNDING
