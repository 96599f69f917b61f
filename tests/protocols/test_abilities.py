import pytest
import torch

import unspool as us
from unspool.data.batch import Batch
from unspool.heads import KerbsHeadConfig, SoftmaxHeadConfig
from unspool.interfaces import Abilities, Step
from unspool.models.trigram import TrigramConfig


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
    assert not model.is_encoder_decoder
    assert model.eos_ids == frozenset()
    for name in vars(Abilities):
        if isinstance(vars(Abilities)[name], property) and name not in (
            "is_encoder_decoder",
            "eos_ids",
            "reads_bos",
        ):
            assert getattr(model, name) is None, name
    assert len(us.generate(model, [0], max_new_tokens=3).tokens) == 3


def test_a_class_that_does_not_say_what_it_can_do_is_told_how_to():
    class Silent:
        vocab_size, context, text = 2, None, None
        start, step = Plain.start, Plain.step

    with pytest.raises(TypeError, match=r"class Silent\(unspool.interfaces.Abilities\)"):
        us.generate(Silent(), [0])


def test_what_a_model_offers_is_itself():
    model = TrigramConfig(vocab_size=5, width=4, inner_width=3).build()
    assert model.rewindable is model
    assert model.output_matrix is model.embed.weight
    assert (model.layered, model.prompt_reading, model.carrying, model.labels) == (None,) * 4
    assert (model.engine, Plain().engine) == ("torch", None)


def test_what_a_head_gives_a_model():
    class Matrix(Plain):
        output_matrix = torch.zeros(2, 7)

    assert (Plain().rank_limit, Matrix().rank_limit) == (None, 8)
    shape = {"vocab_size": 9, "width": 4}
    biased = TrigramConfig(**shape, inner_width=3, head=SoftmaxHeadConfig(bias=True)).build()
    assert (biased.rank_limit, biased.sense_head) == (6, None)
    senses = TrigramConfig(**shape, inner_width=3, head=KerbsHeadConfig()).build()
    assert senses.sense_head is senses.head
    assert (senses.rank_limit, senses.output_matrix) == (None, None)


def test_stacks_of_attention_are_as_high_and_as_wide_as_is_told():
    sizes = {"vocab_size": 9, "width": 4, "heads": 2, "inner_width": 4}
    model = us.models.TransformerSeq2SeqConfig(
        **sizes, encoder_layers=1, decoder_layers=3, bos=1, eos=2
    ).build()
    tokens, lengths = torch.tensor([[3, 4, 2]]), torch.tensor([3])
    batch = Batch(tokens, lengths, tokens, torch.ones(1, 3), source_NS=tokens, source_lengths_N=lengths)
    _, stacks = model.attention_reading.read_attention(batch)
    told = tuple((len(stack.layers), stack.layers[0].shape[1]) for stack in stacks)
    assert told == model.attention_reading.attention_heads == ((1, 2), (3, 2))
