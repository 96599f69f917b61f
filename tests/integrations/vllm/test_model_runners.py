"""Fake V1 and V2 runners: added, removed and moved requests, chunked prefill, late tokens."""

from dataclasses import dataclass, field
from enum import Enum, auto
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from unspool.integrations.vllm.model_runners import V1BatchRows, V2RequestSlots

DECODERS = [
    "Sample(Temperature(0.9), TopP(0.9))",
    "Greedy(NoRepeatNgram(2))",
    "Sample(XTC(), BasisAware(0.2, on='processed'))",
    None,
]
LENGTH = 10


class MoveDirectionality(Enum):
    """vLLM's."""

    UNIDIRECTIONAL = auto()
    SWAP = auto()


@dataclass
class BatchUpdate:
    """vLLM's."""

    batch_size: int
    removed: list = field(default_factory=list)
    added: list = field(default_factory=list)
    moved: list = field(default_factory=list)


class V1Runner:
    """Keeps a batch without gaps, as vLLM does, and reports every change."""

    def __init__(self, texts, engine, *, late):
        self.rows, self.engine, self.batch, self.late = V1BatchRows(texts), engine, [], late
        self.reported, self.gaps = {}, []
        self.update = BatchUpdate(0)

    def add(self, which, params):
        """Add a request to the first gap; its removal is then not reported."""
        tokens = self.reported[which] = list(self.engine.tokens[which])
        row = self.gaps.pop(0) if self.gaps else len(self.batch)
        self.batch[row : row + 1] = [which]
        self.update.added.append((row, params, self.engine.prompts[which], tokens))

    def remove(self, *which):
        self.gaps = sorted(self.batch.index(it) for it in which)
        for row in self.gaps:
            self.batch[row] = None

    def condense(self):
        """Move the last requests into the remaining gaps; these removals are not reported either."""
        while self.gaps:
            last = max((row for row, it in enumerate(self.batch) if it is not None), default=-1)
            if self.gaps[0] >= last:
                break
            self.update.moved.append((last, self.gaps[0], MoveDirectionality.UNIDIRECTIONAL))
            self.batch[self.gaps.pop(0)], self.batch[last] = self.batch[last], None
        self.update.removed, self.gaps = self.gaps[::-1], []
        self.batch = [it for it in self.batch if it is not None]

    def swap(self, one, two):
        self.update.moved.append((one, two, MoveDirectionality.SWAP))
        self.batch[one], self.batch[two] = self.batch[two], self.batch[one]

    def step(self, thrown=()):
        """Draw for each row; requests in `thrown` are still in prefill."""
        changed = self.update.removed or self.update.added or self.update.moved
        self.rows.update_state(self.update if changed else None)
        self.update = BatchUpdate(len(self.batch))
        if not self.batch:
            return
        logits = self.rows.apply(self.engine.logits(self.batch))
        for row, which in enumerate(self.batch):
            if which not in thrown:
                token = int(logits[row].argmax())
                self.engine.tokens[which].append(token)
                self.reported[which].append(-1 if self.late else token)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_v1_texts_do_not_depend_on_batch_changes(seed, late, texts, engine, log):
    chance, runner = Random(seed), V1Runner(texts, engine, late=late)
    params = [engine.params(decoder, seed=40 + it) for it, decoder in enumerate(DECODERS)]
    waiting, done = [0, 1, 2, 3], set()
    while len(done) < len(DECODERS):
        ended = [which for which in runner.batch if len(engine.tokens[which]) >= LENGTH]
        aside = [which for which in runner.batch if which not in ended and chance.random() < 0.2]
        done |= {*ended}
        runner.remove(*ended, *aside)
        came = [waiting.pop(0) for _ in range(len(waiting)) if chance.random() < 0.6]
        for which in came:
            runner.add(which, params[which])
        waiting += aside
        runner.condense()
        if len(runner.batch) > 1 and chance.random() < 0.4:
            runner.swap(0, len(runner.batch) - 1)
        runner.step(thrown=came if chance.random() < 0.5 else ())
    for which, decoder in enumerate(DECODERS[:3]):
        wanted = engine.expected(decoder, 40 + which, which, LENGTH)
        assert engine.tokens[which][: len(wanted)] == wanted
    assert not log


def test_v1_rows_without_a_decoder_are_unchanged(texts, engine):
    rows, logits = V1BatchRows(texts), engine.logits([0, 1])
    before = logits.clone()
    rows.update_state(None)
    rows.update_state(BatchUpdate(1, added=[(0, engine.params(), engine.prompts[0], [])]))
    assert rows.apply(logits).equal(before)


def test_v1_accepts_tokens_that_were_not_drawn(texts, engine):
    tokens: list[int] = []
    rows = V1BatchRows(texts)
    rows.update_state(BatchUpdate(1, added=[(0, engine.params("Greedy()"), engine.prompts[0], tokens)]))
    rows.apply(engine.logits([0]))
    forced = engine.prompts[1][1]
    tokens.append(forced)
    engine.tokens[0].append(forced)
    assert int(rows.apply(engine.logits([0]))[0].argmax()) == int(engine.logits([0])[0].argmax())


def test_v1_prompts_of_embeddings_are_empty(texts, engine):
    rows = V1BatchRows(texts)
    rows.update_state(BatchUpdate(1, added=[(0, engine.params("Greedy()"), None, [])]))
    logits = engine.logits([0])
    best = int(logits[0].argmax())
    assert int(rows.apply(logits)[0].argmax()) == best


V2_DECODERS = [
    "Sample(Temperature(0.9), TopP(0.9))",
    "Greedy(NoRepeatNgram(2))",
    "Sample(BasisAware(0.3))",
    None,
]
V2_LENGTH, SLOTS, MOST = 10, 3, 64


class V2Runner:
    """Tables of tokens by slot, as vLLM's LogitsProcRequestState shows them."""

    def __init__(self, texts, engine, speculative=False):
        self.engine, self.free, self.slots, self.reading = engine, list(range(SLOTS)), {}, {}
        self.table = torch.zeros(SLOTS, MOST, dtype=torch.int32)
        self.prompt_len, self.prefill_len = np.zeros(SLOTS, np.int32), np.zeros(SLOTS, np.int32)
        requests = SimpleNamespace(
            all_token_ids=SimpleNamespace(gpu=self.table),
            prompt_len=SimpleNamespace(np=self.prompt_len),
            prefill_len=SimpleNamespace(np=self.prefill_len),
        )
        self.rows = V2RequestSlots(texts, requests, speculative=speculative)

    def add(self, which, params):
        slot = self.slots[which] = self.free.pop(0)
        there = [*self.engine.prompts[which], *self.engine.tokens[which]]
        self.prompt_len[slot], self.prefill_len[slot] = len(self.engine.prompts[which]), len(there)
        self.table[slot] = 0
        self.table[slot, : len(there)] = torch.tensor(there)
        self.reading[which] = len(there) // 2  # half of it in the first step
        return self.rows.add_request(slot, params)

    def remove(self, which):
        self.free.append(self.slots.pop(which))

    def step(self, order):
        lengths = [
            self.reading.get(which) or len(self.engine.prompts[which]) + len(self.engine.tokens[which])
            for which in order
        ]
        slots = [self.slots[which] for which in order]
        context = SimpleNamespace(
            idx_mapping_np=np.array(slots, np.int32),
            expanded_idx_mapping=torch.tensor(slots),
            seq_lens_upper_bound_np=np.array(lengths, np.int32),
            input_ids=torch.stack(
                [self.table[slot, length - 1] for slot, length in zip(slots, lengths, strict=True)]
            ),
        )
        logits = self.rows.apply(self.engine.logits(order), context)
        for row, which in enumerate(order):
            if not self.reading.pop(which, 0):
                token = int(logits[row].argmax())
                self.table[slots[row], lengths[row]] = token
                self.engine.tokens[which].append(token)
        return logits


@pytest.mark.parametrize("seed", range(8))
def test_v2_texts_do_not_depend_on_batch_changes(seed, texts, engine, log):
    chance, runner = Random(seed), V2Runner(texts, engine)
    params = [engine.params(decoder, seed=40 + it) for it, decoder in enumerate(V2_DECODERS)]
    waiting, done = [0, 1, 2, 3], set()
    while len(done) < len(V2_DECODERS):
        for which in list(runner.slots):
            if len(engine.tokens[which]) >= V2_LENGTH:
                runner.remove(which)
                done.add(which)
            elif chance.random() < 0.15:
                runner.remove(which)
                waiting.append(which)
        while waiting and runner.free and (chance.random() < 0.6 or not runner.slots):
            which = waiting.pop(0)
            assert runner.add(which, params[which]) == (V2_DECODERS[which] is not None)
        if runner.slots:
            runner.step(chance.sample(list(runner.slots), len(runner.slots)))
    for which, decoder in enumerate(V2_DECODERS[:3]):
        wanted = engine.expected(decoder, 40 + which, which, V2_LENGTH)
        assert engine.tokens[which][: len(wanted)] == wanted
    assert not log


def test_v2_slots_without_a_decoder_are_unchanged(texts, engine):
    runner = V2Runner(texts, engine)
    runner.free = [0]
    runner.add(0, engine.params("Greedy()"))
    runner.step([0])
    runner.step([0])
    runner.remove(0)
    assert not runner.add(1, engine.params())
    runner.reading.clear()
    assert (runner.step([1])[0] > -torch.inf).all()


def test_v2_speculative_decoding_ends_the_request(texts, engine, log):
    runner = V2Runner(texts, engine, speculative=True)
    runner.add(0, engine.params("Greedy()"))
    logits = engine.logits([0, 1, 0])
    context = SimpleNamespace(expanded_idx_mapping=torch.tensor([runner.slots[0], 9, runner.slots[0]]))
    runner.rows.apply(logits, context)
    assert [int(row.argmax()) for row in logits[::2]] == [engine.eos, engine.eos]
    assert (logits[1] > -torch.inf).all()
    assert "start vLLM without it" in log[0]
