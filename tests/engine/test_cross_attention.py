from types import SimpleNamespace

import numba
import numpy as np
import pytest
import torch

from unspool.engine.cross_attention import cross_attention, softmax, source_attention, store_source
from unspool.engine.kv_cache import PagedKVCache
from unspool.engine.simd import WIDTH
from unspool.engine.step_memory import NO_FLOATS, NO_INTS, SourceKV, StepOutputs, StepTokens, Workspace
from unspool.engine.weight_table import LAYER, RELU, ModelShape

H, K, I, LAYERS = 4, 2, 6, 2  # noqa: E741
SHAPE = ModelShape(24, LAYERS, H, K, I, 8, 9, LAYER, 1e-5, True, RELU, I, crosses=True)
LENGTHS = np.array([20, 3, 16])


def workspace(**arrays):
    fields = dict.fromkeys(Workspace._fields, NO_FLOATS)
    return Workspace(**fields | arrays)


@numba.njit
def stored(shape, reader, rows, source, work):
    store_source(np.zeros(2, np.int64), 0, rows.positions.size, shape, reader, rows, source, work.qkv)


@numba.njit
def looked(shape, layer, rows, source, work, said):
    cross_attention(shape, layer, rows, source, work, np.zeros(2, np.int64), 0, 1)
    queue, count, out = np.zeros(2, np.int64), rows.positions.size, said.source_attention
    source_attention(queue, 0, count, shape, layer, rows, source, work, out)


@pytest.fixture(scope="module")
def sources():
    """Keys and values (LAYERS, tokens of all sources, 2, K, I), and the blocks that they were stored in."""
    generator = np.random.default_rng(0)
    kv = generator.normal(size=(LAYERS, LENGTHS.sum(), 2, K, I)).astype(np.float32)
    pool = PagedKVCache.empty(SHAPE, len(LENGTHS))
    pool.reserve(LENGTHS)
    places = np.concatenate([np.arange(length) for length in LENGTHS])
    rows = StepTokens(places, np.repeat(np.arange(3), LENGTHS), places, places, NO_INTS)
    source = SourceKV(pool.kv, pool.starts, LENGTHS)
    for reader in range(LAYERS):
        stored(SHAPE, reader, rows, source, workspace(qkv=kv[reader].reshape(-1)))
    return SimpleNamespace(kv=torch.from_numpy(kv), blocks=source)


@pytest.mark.parametrize("layer", range(LAYERS))
def test_rows_attend_to_their_source_and_return_the_attention(sources, layer):
    which = np.array([2, 0, 0, 1])
    q = torch.from_numpy(np.random.default_rng(layer).normal(size=(4, H, I)).astype(np.float32))
    work = workspace(
        qkv=q.numpy().reshape(-1),
        mixed=np.full(4 * H * I, np.nan, np.float32),
        source_scores=np.empty(4 * 32, np.float32),
    )
    attention = np.full(4 * 32, np.nan, np.float32)
    said = StepOutputs(NO_FLOATS, NO_FLOATS, NO_FLOATS, NO_FLOATS, attention, NO_INTS)
    looked(SHAPE, layer, StepTokens(which, which, which, which, NO_INTS), sources.blocks, work, said)
    ends = np.cumsum(LENGTHS)
    for n, source in enumerate(which):
        k, v = sources.kv[layer, ends[source] - LENGTHS[source] : ends[source]].unbind(1)
        k, v = (it.repeat_interleave(H // K, dim=1) for it in (k, v))
        alpha = torch.einsum("hi,shi->hs", q[n], k).div(I**0.5).softmax(-1)
        want = torch.einsum("hs,shi->hi", alpha, v)
        np.testing.assert_allclose(work.mixed.reshape(4, H, I)[n], want, rtol=1e-4, atol=1e-6)
        found = said.source_attention.reshape(4, 32)[n]
        np.testing.assert_allclose(found[: LENGTHS[source]], alpha.mean(0), rtol=1e-4, atol=1e-6)
        assert not found[LENGTHS[source] :].any()


def test_softmax_by_hand():
    rest = WIDTH - 3
    p = np.array([9, 0, np.log(2), np.log(5), *[-3e38] * rest, 9], np.float32)
    numba.njit(lambda p: softmax(p, 1, WIDTH))(p)
    np.testing.assert_allclose(p, [9, 1 / 8, 2 / 8, 5 / 8, *[0] * rest, 9], rtol=1e-6, atol=1e-30)
