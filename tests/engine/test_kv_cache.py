import numpy as np
import pytest

from unspool.engine import memory
from unspool.engine.attention_tiles import BLOCK
from unspool.engine.kv_cache import PagedKVCache
from unspool.engine.weight_table import ModelShape

SHAPE = ModelShape(4, 1, 1, 1, 2, 4, 10, 0, 1e-5, False, 0, 2)


class Rows:
    """A pool beside plain lists: token t of a row is written as a unique number."""

    def __init__(self, rows):
        self.cache, self.texts, self.next = PagedKVCache.empty(SHAPE, rows), [[] for _ in range(rows)], 1

    def write(self, counts):
        counts = np.array(counts)
        self.cache.reserve(None if (counts == 1).all() and self.next % 2 else counts)
        for n, count in enumerate(counts):
            for _ in range(count):
                place = len(self.texts[n])
                start = self.cache.starts[n, place // BLOCK] + place % BLOCK
                self.cache.kv[start] = self.next
                self.texts[n].append(self.next)
                self.next += 1
        self.cache.lengths = self.cache.lengths + counts

    def select(self, rows):
        self.cache.select(np.array(rows))
        self.texts = [list(self.texts[n]) for n in rows]

    def rewind(self, tokens):
        self.cache.rewind(tokens)
        self.texts = [text[: len(text) - tokens] for text in self.texts]

    def check(self):
        for n, text in enumerate(self.texts):
            found = [self.cache.kv[self.cache.starts[n, t // BLOCK] + t % BLOCK] for t in range(len(text))]
            assert found == text


def test_rows_keep_their_tokens_through_any_sequence_of_operations():
    rng = np.random.default_rng(0)
    rows = Rows(3)
    rows.write([5, 40, 16])
    for _ in range(300):
        act = rng.integers(4)
        if act <= 1:
            rows.write(rng.integers(0, 3, len(rows.texts)) if act else [1] * len(rows.texts))
        elif act == 2:
            rows.select(rng.integers(0, len(rows.texts), rng.integers(1, 9)))
        else:
            rows.rewind(int(min(rng.integers(0, 4), min(map(len, rows.texts)))))
        rows.check()


def test_rows_share_blocks_and_copy_one_when_they_write():
    rows = Rows(1)
    rows.write([10 * BLOCK + 3])
    assert rows.cache.used == 11
    rows.select([0] * 8)
    assert rows.cache.used == 11
    rows.write([1] * 8)
    assert rows.cache.used == 10 + 8
    rows.check()


def test_a_beam_of_16_uses_far_less_memory_than_16_sequences():
    rng = np.random.default_rng(1)
    rows = Rows(1)
    rows.write([20])
    rows.select([0] * 16)
    most = 0
    for _ in range(1000):
        rows.write([1] * 16)
        rows.select(np.sort(rng.integers(0, 16, 16)))  # who survives changes at every token
        most = max(most, rows.cache.used)
    one = -(-1020 // BLOCK)
    assert most < 2 * one
    assert len(rows.cache.users) <= 4 * one


def test_keyless_blocks_have_one_key_before_all_values_of_a_layer():
    shape = SHAPE._replace(width=5, layers=2, heads=4, kv_heads=2, head_width=3)
    assert PagedKVCache.empty(shape, 1).block_size == 2 * 12 * BLOCK
    assert PagedKVCache.empty(shape._replace(keyless=True), 1).block_size == 2 * 11 * BLOCK


def test_unused_blocks_are_reused():
    rows = Rows(4)
    begun = len(rows.cache.users)
    for _ in range(50):
        rows.write([3 * BLOCK] * 4)
        rows.rewind(3 * BLOCK)
    assert rows.cache.used == 0
    assert len(rows.cache.users) == begun < 50 * 3 * 4


def test_joined_rows_still_share_blocks():
    ours, theirs = Rows(2), Rows(1)
    ours.write([20, 3])
    theirs.next = 1000
    theirs.write([50])
    theirs.select([0, 0])
    ours.cache.join(theirs.cache)
    ours.texts += [list(text) for text in theirs.texts]
    ours.check()
    assert ours.cache.used == sum(-(-tokens // BLOCK) for tokens in (20, 3, 50))
    ours.write([1, 1, 1, 1])
    ours.check()
    theirs.check()


def test_a_cache_grows_and_reports_if_memory_is_exhausted(monkeypatch):
    monkeypatch.setattr(memory, "_idle_buffers", [])
    monkeypatch.setattr(memory, "MAX_POOLED_FLOATS", 0)
    rows = Rows(2)
    rows.write([64 * BLOCK, 64 * BLOCK])
    rows.check()

    def refuse(*_):
        raise MemoryError

    monkeypatch.setattr(np, "empty", refuse)
    with pytest.raises(MemoryError, match="reduce batch_size"):
        rows.write([64 * BLOCK, 64 * BLOCK])


def refuse_memory(monkeypatch):
    def refuse(*_):
        raise MemoryError

    monkeypatch.setattr(memory, "_idle_buffers", [])
    monkeypatch.setattr("unspool.engine.kv_cache.empty_pooled", refuse)


def test_rows_are_unchanged_if_memory_runs_out_while_they_diverge(monkeypatch):
    rows = Rows(1)
    rows.write([3])
    rows.cache.kv[rows.cache.block_size :] = -1
    rows.select([0] * (len(rows.cache.users) + 1))
    with monkeypatch.context() as context:
        refuse_memory(context)
        with pytest.raises(MemoryError, match="reduce batch_size"):
            rows.write([1] * len(rows.texts))
    rows.check()
    rows.select(range(9))
    rows.write([1] * 9)
    rows.check()


def test_compact_leaves_a_full_cache_unchanged(monkeypatch):
    rows = Rows(1)
    rows.write([1])
    rows.select([0] * 600)
    rows.write([1] * 600)
    rows.select([5, 299])
    refuse_memory(monkeypatch)
    with pytest.raises(MemoryError):
        rows.cache.compact()
    assert rows.cache.rows == 2
    rows.check()


def test_shared_memory_counts_once_and_compact_frees_unused_memory():
    rows = Rows(2)
    rows.write([3 * BLOCK, 1])
    block = rows.cache.block_size * 4
    assert rows.cache.bytes_held(np.array([0])) == 3 * block
    rows.select([0, 0, 1])
    assert rows.cache.bytes_held(np.array([0, 1, 2])) == 4 * block
    rows.select([1] * 600)
    rows.write([1] * 600)
    large = rows.cache.kv.size
    rows.cache.compact()  # all of it is in use
    assert rows.cache.kv.size == large
    rows.select([5, 299])
    rows.cache.compact()
    assert rows.cache.kv.size < large / 4
    rows.check()
    rows.write([2, 1])
    rows.check()


def test_the_memory_of_a_deleted_cache_is_reused_unless_it_has_other_users(monkeypatch):
    monkeypatch.setattr(memory, "_idle_buffers", [])
    monkeypatch.setattr(memory, "MIN_POOLED_FLOATS", 1)
    pool = PagedKVCache.empty(SHAPE, 1)
    where = pool.kv.ctypes.data
    del pool
    pool = PagedKVCache.empty(SHAPE, 1)
    assert pool.kv.ctypes.data == where
    held = pool.kv
    del pool
    assert PagedKVCache.empty(SHAPE, 1).kv.ctypes.data != where
    assert held.ctypes.data == where
