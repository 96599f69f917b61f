from random import Random
from types import SimpleNamespace

import torch

from unspool.lab.claims import networks
from unspool.lab.claims.networks import (
    PLACES,
    WIDTH,
    Stack,
    identity_error,
    loss_curve,
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


def test_a_curve_has_a_point_for_every_update():
    assert len(loss_curve("post", 0, 1, 3, 1)) == 3


def test_a_diverged_run_repeats_its_last_loss(monkeypatch):
    def train_model(*_, losses, **others):
        losses += [5.0, 9.0]
        raise Diverged("it is not finite")

    monkeypatch.setattr(networks, "train_model", train_model)
    assert loss_curve("post", 0, 1, 4, 1) == [5.0, 9.0, 9.0, 9.0]
