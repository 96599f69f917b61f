"""The engine beside a recurrent network of a few lines of numpy."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from unspool.engine import weight_table
from unspool.engine.rnn import rnn_engine, rnn_parts
from unspool.engine.rnn.rnn_engine import Remembered, RNNEngine, SourceMemory, groups
from unspool.engine.weight_table import Weights

D, H, L, V = 6, 10, 2, 17
SHAPE = rnn_parts.RNNShape(H, H, L, 1, rnn_parts.CELLS["gru"], V, rnn_parts.NO_CONTEXT, 0, 0)


@pytest.fixture(scope="module")
def weights():
    torch.manual_seed(0)
    layer = {rnn_parts.INPUT_GATES: (3 * H, H), rnn_parts.STATE_GATES: (3 * H, H)}
    rows = [layer] * L + [{weight_table.EMBED: (V, H), weight_table.HEAD: (V, H)}]
    return [
        {part: (torch.randn(shape) * 0.4, torch.randn(shape[0])) for part, shape in r.items()} for r in rows
    ]


@pytest.fixture(scope="module")
def engine(weights):
    table = Weights(L)
    for layer, row in enumerate(weights):
        for part, (weight, bias) in row.items():
            table.put(layer, part, weight, bias)
    return RNNEngine(SHAPE, table)


def by_hand(weights, tokens):
    """log p after every token of one text, in double precision."""
    *layers, model = [{p: [it.double().numpy() for it in wb] for p, wb in row.items()} for row in weights]
    h, found = np.zeros((L, H)), []
    for token in tokens:
        x = model[weight_table.EMBED][0][token]
        for layer, w in enumerate(layers):
            g = w[rnn_parts.INPUT_GATES][0] @ x + w[rnn_parts.INPUT_GATES][1]
            u = w[rnn_parts.STATE_GATES][0] @ h[layer] + w[rnn_parts.STATE_GATES][1]
            r, z = 1 / (1 + np.exp(-(g + u)[: 2 * H].reshape(2, H)))
            n = np.tanh(g[2 * H :] + r * u[2 * H :])
            x = h[layer] = (1 - z) * n + z * h[layer]
        scores = model[weight_table.HEAD][0] @ x + model[weight_table.HEAD][1]
        found.append(scores - np.log(np.exp(scores).sum()))
    return np.array(found)


def text(length, seed=0):
    return np.random.default_rng(seed).integers(0, V, length)


def stepped(engine, *texts):
    """log p after every token of texts of one length."""
    state, found = Remembered.nothing(SHAPE, len(texts)), []
    for tokens in np.array(texts).T:
        _, logp, _, looked = engine.step(tokens, state, None, say=True)
        assert looked.size == 0
        found.append(logp)
    return np.stack(found, axis=1), state


def test_a_text_is_read_as_by_hand(engine, weights):
    said, _ = stepped(engine, text(12))
    np.testing.assert_allclose(said[0], by_hand(weights, text(12)), atol=1e-5)


def test_a_prompt_in_any_company_and_token_by_token_is_the_same_to_the_bit(engine, monkeypatch):
    tokens = text(12)
    said, state = stepped(engine, text(12, 5), tokens)
    for most in (4096, 10):
        monkeypatch.setattr(rnn_engine, "TOGETHER", most)
        for mates in ([], [text(3, 1)], [text(40, 2), text(1, 3)]):
            for place in range(len(mates) + 1):
                read = engine.read([*mates[:place], tokens, *mates[place:]])
                np.testing.assert_array_equal(read.h[:, place], state.h[:, 1])
                logp, _ = engine.say(read.h[-1].copy())
                np.testing.assert_array_equal(logp[place], said[1, -1])


def test_any_number_of_threads_says_the_same_to_the_bit(engine, monkeypatch):
    monkeypatch.setattr(rnn_engine, "WORTH_SHARING", 0)
    found = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        found += [engine.read([text(20), text(33, 1)]).h for _ in range(5)]
        found += [stepped(engine, text(9), text(9, 1))[0] for _ in range(2)]
    for n in range(7):
        for other in found[n::7]:
            np.testing.assert_array_equal(other, found[n])


def test_longer_texts_stand_first_and_all_are_there():
    ((order, found),) = groups([[1], [2, 3, 4], [5, 6]])
    assert order.tolist() == [1, 2, 0]
    assert found.tokens.tolist() == [1, 2, 3, 4, 5, 6]
    assert found.starts.tolist() == [1, 4, 0]
    assert found.active.tolist() == [3, 2, 1]


def test_sources_are_shared_selected_and_joined_without_those_that_nobody_looks_at():
    vectors = np.arange(12, dtype=np.float32).reshape(6, 2)
    memory = SourceMemory(vectors, vectors, np.array([0, 2, 3]), np.array([2, 1, 3]), 3)
    chosen = memory.select(np.array([2, 2, 0]))
    assert chosen.vectors is vectors
    both = chosen.join(memory.select(np.array([1])))
    assert both.begins.tolist() == [2, 2, 0, 5]
    assert both.lengths.tolist() == [3, 3, 2, 1]
    np.testing.assert_array_equal(both.vectors, vectors[[0, 1, 3, 4, 5, 2]])
    assert both.columns == 3


def test_nothing_is_read_outside_an_array():
    """Models of every kind once more, with numba looking at every index."""
    env = os.environ | {"NUMBA_BOUNDSCHECK": "1"}
    models = str(Path(__file__).parents[2] / "models/test_compiled_rnn.py")
    command = [sys.executable, "-m", "pytest", "-q", "-x", models, "-k", "walk", "-p", "no:cacheprovider"]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]
    assert done.stdout.startswith("....")
