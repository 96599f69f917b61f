"""A made-up V1 runner: rows that come, go and change places, prompts read in parts, tokens that are told late."""

from dataclasses import dataclass, field
from enum import Enum, auto
from random import Random

import pytest

from unspool.integrations.vllm.model_runners import V1BatchRows

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


class Runner:
    """Keeps a batch without gaps, as vLLM does, and tells of every change."""

    def __init__(self, texts, engine, *, late):
        self.rows, self.engine, self.batch, self.late = V1BatchRows(texts), engine, [], late
        self.reported, self.gaps = {}, []
        self.update = BatchUpdate(0)

    def add(self, which, params):
        """Into the first gap, of which nobody is told then."""
        tokens = self.reported[which] = list(self.engine.tokens[which])
        row = self.gaps.pop(0) if self.gaps else len(self.batch)
        self.batch[row : row + 1] = [which]
        self.update.added.append((row, params, self.engine.prompts[which], tokens))

    def remove(self, *which):
        self.gaps = sorted(self.batch.index(it) for it in which)
        for row in self.gaps:
            self.batch[row] = None

    def condense(self):
        """The last requests move into the gaps that are left; of these, too, nobody is told."""
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
        """Each row draws; requests in `thrown` are still reading their prompts."""
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
def test_whatever_happens_to_the_batch_each_text_is_the_one_of_its_seed(seed, late, texts, engine, log):
    chance, runner = Random(seed), Runner(texts, engine, late=late)
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
        wanted = engine.said(decoder, 40 + which, which, LENGTH)
        assert engine.tokens[which][: len(wanted)] == wanted
    assert not log


def test_rows_of_vllms_own_are_not_touched(texts, engine):
    rows, logits = V1BatchRows(texts), engine.logits([0, 1])
    before = logits.clone()
    rows.update_state(None)
    rows.update_state(BatchUpdate(1, added=[(0, engine.params(), engine.prompts[0], [])]))
    assert rows.apply(logits).equal(before)


def test_tokens_that_are_not_the_drawn_ones_are_taken_as_they_are(texts, engine):
    tokens: list[int] = []
    rows = V1BatchRows(texts)
    rows.update_state(BatchUpdate(1, added=[(0, engine.params("Greedy()"), engine.prompts[0], tokens)]))
    rows.apply(engine.logits([0]))
    forced = engine.prompts[1][1]
    tokens.append(forced)
    engine.tokens[0].append(forced)
    assert int(rows.apply(engine.logits([0]))[0].argmax()) == int(engine.logits([0])[0].argmax())


def test_a_prompt_that_is_none_of_tokens_is_empty(texts, engine):
    rows = V1BatchRows(texts)
    rows.update_state(BatchUpdate(1, added=[(0, engine.params("Greedy()"), None, [])]))
    logits = engine.logits([0])
    best = int(logits[0].argmax())
    assert int(rows.apply(logits)[0].argmax()) == best
