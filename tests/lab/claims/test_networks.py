from random import Random
from types import SimpleNamespace

import torch

from unspool.lab.claims import networks
from unspool.lab.claims.networks import (
    PLACES,
    RUNS,
    WIDTH,
    Stack,
    bidirectional_context,
    identity_error,
    loss_curve,
    norm_place,
    residual_identity,
    sentence,
    share_changed,
    share_tagged,
)
from unspool.training import Diverged


class Reader:
    """Tags a name by the word after it, as one should."""

    def tag(self, texts):
        return [[SimpleNamespace(label=it) for it in self.tags(text.split())] for text in texts]

    def tags(self, words):
        return ["O", "PLACE" if words[2] in PLACES else "PERSON", *["O"] * (len(words) - 2)]


def test_every_word_has_a_tag_and_only_the_next_word_tells():
    dice = Random(1)
    rows = [sentence(dice) for _ in range(50)]
    assert all(len(words.split()) == len(tags.split()) for words, tags in rows)
    assert share_tagged(Reader().tag, rows) == 1.0
    assert share_changed(Reader().tag) == 1.0
    blind = Reader()
    blind.tags = lambda words: ["O", "PLACE", "O"]
    assert 0.3 < share_tagged(blind.tag, rows) < 0.7
    assert share_changed(blind.tag) == 0.0


def test_every_part_of_bidirectional_context_can_fail(every_part_can_fail):
    good = {
        **{"both directions: names tagged right": 1.0, "left to right: names tagged right": 0.52},
        **{
            "both directions: names that the next word turns": 1.0,
            "left to right: names that the next word turns": 0.0,
        },
    }
    changes = [
        {"both directions: names tagged right": 0.9},
        {"left to right: names tagged right": 0.8},
        {"both directions: names that the next word turns": 0.9},
        {"left to right: names that the next word turns": 0.1},
    ]
    every_part_can_fail(bidirectional_context, good, changes)


def test_a_stack_whose_layers_say_nothing_is_the_identity_with_residuals():
    x = torch.randn(3, WIDTH)
    for residual, wanted in ((True, x), (False, torch.zeros_like(x))):
        model = Stack(4, residual)
        for parameter in model.parameters():
            torch.nn.init.zeros_(parameter)
        assert torch.equal(model(x), wanted)


def test_one_layer_learns_something():
    before, _ = identity_error(1, True, 1, 1)
    after, first = identity_error(1, True, 1, 60)
    assert after < before
    assert first > 0


def test_every_part_of_residual_identity_can_fail(every_part_can_fail):
    good = {
        **{"plain": [0.1, 0.2, 0.95], "residual": [0.1, 0.05, 0.01]},
        **{"plain gradient": [1.0, 1e-6], "residual gradient": [1.0, 1.0]},
    }
    changes = [
        {"plain": [0.1, 0.2, 0.8]},
        {"plain": [0.1, 0.6, 0.95]},
        {"residual": [0.1, 0.2]},
        {"plain gradient": [1.0, 0.1]},
    ]
    every_part_can_fail(residual_identity, good, changes)


def test_a_curve_has_a_point_for_every_update():
    assert len(loss_curve("post", 0, 1, 3, 1)) == 3


def test_a_diverged_run_repeats_its_last_loss(monkeypatch):
    def train_model(*_, losses, **others):
        losses += [5.0, 9.0]
        raise Diverged("it is not finite")

    monkeypatch.setattr(networks, "train_model", train_model)
    assert loss_curve("post", 0, 1, 4, 1) == [5.0, 9.0, 9.0, 9.0]


def test_every_part_of_norm_place_can_fail(every_part_can_fail):
    good = dict(zip((f"{name}: loss at the end" for name in RUNS), (2.0, 2.0, 3.0, 2.0), strict=True))
    changes = [
        {"pre-LN, no warm-up: loss at the end": 2.5},
        {"post-LN, no warm-up: loss at the end": 2.1},
        {"post-LN, warm-up: loss at the end": 2.9},
    ]
    every_part_can_fail(norm_place, good, changes)
