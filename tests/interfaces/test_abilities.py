import pytest
import torch

import unspool as us
from unspool.data.batch import Batch
from unspool.heads import KerbsHeadConfig, SoftmaxHeadConfig
from unspool.interfaces import Abilities, Step
from unspool.models.trigram import TrigramConfig


class Plain(Abilities):
    """A model that can be decoded, and nothing more."""

    vocab_size, context, tokenizer = 2, None, None

    def start(self, prompts):
        return Step(torch.full((len(prompts), 2), 0.5).log()), Rows()

    def step(self, state, tokens_N):
        return Step(torch.full((len(tokens_N), 2), 0.5).log()), state


class Rows:
    def select(self, rows_M):
        return self


def test_every_ability_is_missing_by_default():
    model = Plain()
    assert not model.is_encoder_decoder
    assert model.eos_ids == frozenset()
    present = ("is_encoder_decoder", "eos_ids", "reads_bos")
    properties = [
        name for kind in Abilities.__mro__ for name, it in vars(kind).items() if isinstance(it, property)
    ]
    assert len(properties) == 18
    for name in properties:
        if name not in present:
            assert getattr(model, name) is None, name
    assert len(us.generate(model, [0], max_new_tokens=3).tokens) == 3


def test_a_class_without_abilities_is_refused():
    class Silent:
        vocab_size, context, tokenizer = 2, None, None
        start, step = Plain.start, Plain.step

    with pytest.raises(TypeError, match=r"class Silent\(unspool.interfaces.Abilities\)"):
        us.generate(Silent(), [0])


def test_an_ability_is_the_model():
    model = TrigramConfig(vocab_size=5, width=4, inner_width=3).build()
    assert model.rewindable is model
    assert model.output_matrix is model.embed.weight
    assert (model.layered, model.prompt_reading, model.labels) == (None,) * 3
    assert (model.engine, Plain().engine) == ("torch", None)


def test_the_head_determines_rank_limit_and_sense_head():
    class Matrix(Plain):
        output_matrix = torch.zeros(2, 7)

    assert (Plain().rank_limit, Matrix().rank_limit) == (None, 8)
    shape = {"vocab_size": 9, "width": 4}
    biased = TrigramConfig(**shape, inner_width=3, head=SoftmaxHeadConfig(bias=True)).build()
    assert (biased.rank_limit, biased.sense_head) == (6, None)
    senses = TrigramConfig(**shape, inner_width=3, head=KerbsHeadConfig()).build()
    assert senses.sense_head is senses.head
    assert (senses.rank_limit, senses.output_matrix) == (None, None)


def test_attention_stacks_have_the_announced_layers_and_heads():
    sizes = {"vocab_size": 9, "width": 4, "heads": 2, "inner_width": 4}
    model = us.models.TransformerSeq2SeqConfig(
        **sizes, encoder_layers=1, decoder_layers=3, bos=1, eos=2
    ).build()
    tokens, lengths = torch.tensor([[3, 4, 2]]), torch.tensor([3])
    batch = Batch(tokens, lengths, tokens, torch.ones(1, 3), source_NS=tokens, source_lengths_N=lengths)
    _, stacks = model.attention_reading.read_attention(batch)
    told = tuple((len(stack.layers), stack.layers[0].shape[1]) for stack in stacks)
    assert told == model.attention_reading.attention_heads == ((1, 2), (3, 2))
