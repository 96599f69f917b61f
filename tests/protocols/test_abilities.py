import pytest
import torch

import unspool as us
from unspool.models.trigram import TrigramConfig
from unspool.protocols import Abilities, Step


class Plain(Abilities):
    """A model that can be decoded, and nothing more."""

    vocab_size, context, text = 2, None, None

    def start(self, prompts):
        return Step(torch.full((len(prompts), 2), 0.5).log()), Rows()

    def step(self, state, tokens_N):
        return Step(torch.full((len(tokens_N), 2), 0.5).log()), state


class Rows:
    def select(self, rows_M):
        return self


def test_a_model_can_do_nothing_that_it_does_not_say():
    model = Plain()
    assert not model.answers
    for name in vars(Abilities):
        if isinstance(vars(Abilities)[name], property) and name != "answers":
            assert getattr(model, name) is None, name
    assert len(us.generate(model, [0], max_new_tokens=3).tokens) == 3


def test_a_class_that_does_not_say_what_it_can_do_is_told_how_to():
    class Silent:
        vocab_size, context, text = 2, None, None
        start, step = Plain.start, Plain.step

    with pytest.raises(TypeError, match=r"class Silent\(unspool.protocols.Abilities\)"):
        us.generate(Silent(), [0])


def test_what_a_model_offers_is_itself():
    model = TrigramConfig(vocab_size=5, width=4, inner_width=3).build()
    assert model.rewindable is model
    assert model.output_matrix is model.embed.weight
    assert (model.layered, model.prompt_reading, model.carrying, model.labels) == (None,) * 4
    assert (model.engine, Plain().engine) == ("torch", None)
