"""A made-up V2 runner: slots that are given to others, rows in another order at every step, prompts read in parts."""

from random import Random
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from unspool.integrations.vllm.model_runners import V2RequestSlots

DECODERS = [
    "Sample(Temperature(0.9), TopP(0.9))",
    "Greedy(NoRepeatNgram(2))",
    "Sample(BasisAware(0.3))",
    None,
]
LENGTH, SLOTS, MOST = 10, 3, 64


class Runner:
    """Tables of tokens by slot, as vLLM's LogitsProcRequestState shows them."""

    def __init__(self, texts, engine, drafts=False):
        self.engine, self.free, self.slots, self.reading = engine, list(range(SLOTS)), {}, {}
        self.table = torch.zeros(SLOTS, MOST, dtype=torch.int32)
        self.prompt_len, self.prefill_len = np.zeros(SLOTS, np.int32), np.zeros(SLOTS, np.int32)
        requests = SimpleNamespace(
            all_token_ids=SimpleNamespace(gpu=self.table),
            prompt_len=SimpleNamespace(np=self.prompt_len),
            prefill_len=SimpleNamespace(np=self.prefill_len),
        )
        self.rows = V2RequestSlots(texts, requests, drafts=drafts)

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
def test_whatever_happens_to_the_batch_each_text_is_the_one_of_its_seed(seed, texts, engine, log):
    chance, runner = Random(seed), Runner(texts, engine)
    params = [engine.params(decoder, seed=40 + it) for it, decoder in enumerate(DECODERS)]
    waiting, done = [0, 1, 2, 3], set()
    while len(done) < len(DECODERS):
        for which in list(runner.slots):
            if len(engine.tokens[which]) >= LENGTH:
                runner.remove(which)
                done.add(which)
            elif chance.random() < 0.15:
                runner.remove(which)
                waiting.append(which)
        while waiting and runner.free and (chance.random() < 0.6 or not runner.slots):
            which = waiting.pop(0)
            assert runner.add(which, params[which]) == (DECODERS[which] is not None)
        if runner.slots:
            runner.step(chance.sample(list(runner.slots), len(runner.slots)))
    for which, decoder in enumerate(DECODERS[:3]):
        wanted = engine.said(decoder, 40 + which, which, LENGTH)
        assert engine.tokens[which][: len(wanted)] == wanted
    assert not log


def test_a_slot_that_is_given_to_a_request_of_vllms_own_is_not_touched(texts, engine):
    runner = Runner(texts, engine)
    runner.free = [0]
    runner.add(0, engine.params("Greedy()"))
    runner.step([0])
    runner.step([0])
    runner.remove(0)
    assert not runner.add(1, engine.params())
    runner.reading.clear()
    assert (runner.step([1])[0] > -torch.inf).all()


def test_beside_drafts_a_text_is_ended_in_all_of_its_rows(texts, engine, log):
    runner = Runner(texts, engine, drafts=True)
    runner.add(0, engine.params("Greedy()"))
    logits = engine.logits([0, 1, 0])
    context = SimpleNamespace(expanded_idx_mapping=torch.tensor([runner.slots[0], 9, runner.slots[0]]))
    runner.rows.apply(logits, context)
    assert [int(row.argmax()) for row in logits[::2]] == [engine.eos, engine.eos]
    assert (logits[1] > -torch.inf).all()
    assert "start it without" in log[0]
