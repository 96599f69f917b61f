"""The engine beside a Transformer of a few lines of numpy."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from unspool.engine import weight_table
from unspool.engine.kv_cache import PagedKVCache
from unspool.engine.transformer_engine import MAX_ROWS_PER_CALL, PositionTables, TransformerEngine
from unspool.engine.weight_table import ModelShape, WeightTable
from unspool.nn.positions import Rotary

D, H, K, I, F, V, L = 16, 4, 2, 6, 20, 31, 2  # noqa: E741
SHAPE = ModelShape(D, L, H, K, I, F, V, weight_table.RMS, 1e-5, False, weight_table.SWIGLU, I)


@pytest.fixture(scope="module")
def weights():
    torch.manual_seed(0)
    layer = {
        weight_table.ATTENTION_NORM: (D,),
        weight_table.QKV: ((H + 2 * K) * I, D),
        weight_table.ATTENTION_OUT: (D, H * I),
        weight_table.FEED_FORWARD_NORM: (D,),
        weight_table.UP: (2 * F, D),
        weight_table.DOWN: (D, F),
    }
    model = {weight_table.LAST_NORM: (D,), weight_table.EMBED: (V, D), weight_table.HEAD: (V, D)}
    rows = [layer] * L + [model]
    return [{part: torch.randn(shape) * 0.4 for part, shape in row.items()} for row in rows]


@pytest.fixture(scope="module")
def engine(weights):
    table = WeightTable(L)
    for layer, row in enumerate(weights):
        for part, weight in row.items():
            table.put(layer, part, weight)
    return TransformerEngine(SHAPE, table, PositionTables([Rotary(I)] * L, None))


def rms(x, gain):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * gain


def turned(x, t):
    half = I // 2
    angle = t[:, None, None] * 10000.0 ** (-np.arange(0, I, 2) / I)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate((a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)), -1)


def by_hand(weights, tokens):
    """log p after every token of one text, in double precision."""
    *layers, model = [{part: w.double().numpy() for part, w in row.items()} for row in weights]
    x, t = model[weight_table.EMBED][tokens], np.arange(len(tokens))
    for w in layers:
        qkv = (rms(x, w[weight_table.ATTENTION_NORM]) @ w[weight_table.QKV].T).reshape(-1, H + 2 * K, I)
        q, k, v = turned(qkv[:, :H], t), turned(qkv[:, H : H + K], t), qkv[:, H + K :]
        mixed = np.zeros((len(tokens), H, I))
        for h in range(H):
            score = q[:, h] @ k[:, h // (H // K)].T / np.sqrt(I)
            score[np.triu_indices(len(tokens), 1)] = -np.inf
            alpha = np.exp(score - score.max(-1, keepdims=True))
            mixed[:, h] = alpha / alpha.sum(-1, keepdims=True) @ v[:, h // (H // K)]
        x = x + mixed.reshape(-1, H * I) @ w[weight_table.ATTENTION_OUT].T
        up = rms(x, w[weight_table.FEED_FORWARD_NORM]) @ w[weight_table.UP].T
        gate, up = up[:, :F], up[:, F:]
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w[weight_table.DOWN].T
    z = rms(x, model[weight_table.LAST_NORM]) @ model[weight_table.HEAD].T
    return z - np.log(np.exp(z).sum(-1, keepdims=True))


def text(length, seed=0):
    return np.random.default_rng(seed).integers(0, V, length)


def read(engine, *texts):
    pool = PagedKVCache.empty(SHAPE, len(texts))
    return engine.read(pool, np.concatenate(texts), np.array([len(t) for t in texts]), with_logp=True), pool


def test_a_text_is_read_as_by_hand(engine, weights):
    tokens = text(MAX_ROWS_PER_CALL + 30)
    said, _ = read(engine, tokens)
    np.testing.assert_allclose(said.logp, by_hand(weights, tokens), atol=1e-4)
    np.testing.assert_allclose(np.exp(said.logp).sum(-1), 1, atol=1e-5)


def test_results_are_bit_identical_token_by_token_in_any_batch_and_as_a_prompt(engine):
    tokens = text(40)
    whole, _ = read(engine, tokens)
    for mates in ([], [text(3, 1)], [text(70, 2), text(1, 3)]):
        for place in range(len(mates) + 1):
            texts = [*mates[:place], tokens, *mates[place:]]
            said, _ = read(engine, *texts)
            at = sum(map(len, texts[:place]))
            np.testing.assert_array_equal(said.logp[at : at + 40], whole.logp)
    pool = PagedKVCache.empty(SHAPE, 1)
    for t, token in enumerate(tokens):  # counts may be None for one token per row
        said = engine.read(pool, np.array([token]), np.array([1]) if t % 2 else None, with_logp=True)
        np.testing.assert_array_equal(said.logp[0], whole.logp[t])
        np.testing.assert_array_equal(said.hidden[0], whole.hidden[t])


def test_results_are_bit_identical_on_any_number_of_threads(engine, monkeypatch):
    monkeypatch.setattr("unspool.engine.transformer_engine.WORTH_SHARING", 0)
    found = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        found += [read(engine, text(20), text(33, 1))[0].logp for _ in range(5)]
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_the_head_alone_equals_the_step(engine):
    said, _ = read(engine, text(MAX_ROWS_PER_CALL + 9))
    logp, log_norm = engine.head_logp(said.hidden)
    np.testing.assert_array_equal(logp, said.logp)
    np.testing.assert_array_equal(log_norm, said.log_norm)


def test_the_last_early_exit_is_the_input_of_the_head(engine):
    pool = PagedKVCache.empty(SHAPE, 1)
    tokens = text(MAX_ROWS_PER_CALL + 9)
    said = engine.read(pool, tokens, np.array([len(tokens)]), (L, 0))
    np.testing.assert_array_equal(said.early[:, 0], said.hidden)
    assert not np.array_equal(said.early[:, 1], said.hidden)
    assert said.logp.size == 0


def test_weights_are_not_copied(engine, weights):
    before, _ = read(engine, text(5))
    weights[-1][weight_table.HEAD][7] += 1
    after, _ = read(engine, text(5))
    weights[-1][weight_table.HEAD][7] -= 1
    assert not np.array_equal(before.logp, after.logp)
    np.testing.assert_array_equal(before.hidden, after.hidden)


def test_nothing_is_read_outside_an_array():
    """Run tests of this file again with numba's bounds checks."""
    env = os.environ | {"NUMBA_BOUNDSCHECK": "1"}
    chosen = "by_hand or bit_identical or early_exit"
    command = [sys.executable, "-m", "pytest", "-q", "-x", __file__, "-k", chosen, "-p", "no:cacheprovider"]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]
    assert done.stdout.startswith("....")
