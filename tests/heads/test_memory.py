"""No head's loss holds the scores of all targets at once: memory is that of one chunk, however many there are."""

import gc

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from unspool.heads import HEADS, chunked_loss

WIDTH, WORDS, FEW, MANY = 4, 1024, 256, 1280
SETTINGS = {kind: {} for kind in HEADS} | {"mixture": {"experts": 2}, "kerbs": {"senses": 2.0}}


def peak_bytes(call):
    """The most that was allocated at any one time."""
    gc.collect()  # what others left behind must not be freed while this is measured
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        call()
    events = [it for it in found.profiler.kineto_results.events() if it.name() == "[memory]"]
    held = most = 0
    for event in sorted(events, key=lambda it: it.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most


def loss_bytes(kind, rows, smoothing):
    torch.manual_seed(0)
    head = HEADS[kind](**SETTINGS[kind]).build(WIDTH, WORDS)
    hidden, targets = torch.randn(rows, WIDTH, requires_grad=True), torch.randint(WORDS, (rows,))
    return peak_bytes(lambda: head.loss(hidden, targets, torch.ones(rows), smoothing)[0].backward())


def growth(kind, smoothing):
    """Bytes that more targets take, in parts of their scores."""
    more = loss_bytes(kind, MANY, smoothing) - loss_bytes(kind, FEW, smoothing)
    return more / ((MANY - FEW) * WORDS * 4)


def test_what_is_measured():
    assert peak_bytes(lambda: [torch.empty(100) for _ in range(7)]) == 7 * 400
    assert peak_bytes(lambda: [len(torch.empty(100)) for _ in range(7)]) < 3 * 400


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("kind", HEADS)
def test_memory_does_not_grow_by_the_scores_of_more_targets(kind, smoothing, monkeypatch):
    monkeypatch.setattr(chunked_loss, "SCORES", 64 * WORDS)
    monkeypatch.setattr(chunked_loss, "FEWEST_ROWS", 16)
    assert growth(kind, smoothing) < 0.05


@pytest.mark.parametrize("kind", HEADS)
def test_with_all_rows_in_one_chunk_it_would(kind, monkeypatch):
    monkeypatch.setattr(chunked_loss, "SCORES", 1 << 40)
    assert growth(kind, 0.0) > 0.9
