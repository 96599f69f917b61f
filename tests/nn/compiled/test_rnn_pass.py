"""A pass over sources beside torch's own, which knows nothing of packed rows."""

import numpy as np
import pytest
import torch

from unspool.engine import weight_table
from unspool.engine.rnn import rnn_parts
from unspool.engine.rnn.rnn_engine import RNNEngine
from unspool.engine.weight_table import Weights
from unspool.nn.rnn import CELLS

V, D, H, L = 11, 5, 7, 2
SOURCES = [[1, 2], [3, 4, 5, 6, 7, 8], [9]]


def made(cell, context, bidirectional):
    torch.manual_seed(1)
    net, embed = CELLS[cell](D, H, L, bidirectional=bidirectional), torch.nn.Embedding(V, D)
    begin = torch.nn.Linear(net.out_width, 4)
    ways = ("", "_reverse") if bidirectional else ("",)
    weights = Weights(L * len(ways))
    for layer in range(L):
        for way, ending in enumerate(ways):
            for part, which in ((rnn_parts.INPUT_GATES, "ih"), (rnn_parts.STATE_GATES, "hh")):
                found = (getattr(net.net, f"{it}_{which}_l{layer}{ending}") for it in ("weight", "bias"))
                weights.put(layer * len(ways) + way, part, *found)
    weights.put(L * len(ways), weight_table.EMBED, embed.weight)
    weights.put(L * len(ways), rnn_parts.BEGIN, begin.weight, begin.bias)
    shape = rnn_parts.RNNShape(
        D, H, L, len(ways), rnn_parts.CELLS[cell], V, rnn_parts.CONTEXTS[context], net.out_width, 0
    )
    return net, embed, begin, RNNEngine(shape, weights)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("cell", CELLS)
@torch.inference_mode()
def test_what_is_said_of_every_token_is_torchs(cell, bidirectional):
    net, embed, begin, engine = made(cell, "dot", bidirectional)
    memory, begun = engine.encode(SOURCES, 4)
    assert memory.lengths.tolist() == [2, 6, 1]
    for n, source in enumerate(SOURCES):
        want, _ = net.read(embed(torch.tensor([source])))
        at = memory.begins[n]
        np.testing.assert_allclose(memory.vectors[at : at + len(source)], want[0], atol=1e-6)
        ends = torch.cat((want[0, -1, :H], want[0, 0, H:]))
        np.testing.assert_allclose(begun[n], torch.tanh(begin(ends)), atol=1e-6)


@torch.inference_mode()
def test_the_mean_of_a_source_is_kept_in_its_place():
    net, embed, begin, engine = made("gru", "mean", True)
    memory, begun = engine.encode(SOURCES, 4)
    assert memory.vectors.shape == (3, 2 * H)
    for n, source in enumerate(SOURCES):
        want = net.read(embed(torch.tensor([source])))[0][0].mean(0)
        np.testing.assert_allclose(memory.vectors[memory.begins[n]], want, atol=1e-6)
        np.testing.assert_allclose(begun[n], torch.tanh(begin(want)), atol=1e-6)
