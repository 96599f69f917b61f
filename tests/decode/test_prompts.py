from types import SimpleNamespace

import numpy as np
import pytest
import torch

from unspool.arguments import int_or_none
from unspool.decode.prompts import as_batch, ids_of, prompt_vocabulary, tokens_left
from unspool.interfaces import Abilities
from unspool.testing import random_table


@pytest.mark.parametrize(
    ("context", "answers", "prompt", "expected"),
    [
        (None, False, 9, None),
        (None, True, 9, None),
        (16, False, 12, 4),
        (16, False, 16, 0),
        (16, False, 20, -4),
        (16, True, 12, 15),
        (16, True, 15, 15),
        (1, True, 1, 1),
    ],
)
def test_a_prompt_uses_the_context_and_a_source_does_not(context, answers, prompt, expected):
    model = SimpleNamespace(context=context, is_encoder_decoder=answers, prompts_read=lambda _: ())
    assert tokens_left(model, [3] * prompt) == expected


MODEL = random_table(9, seed=0)
CHAT = [{"role": "user", "content": "a"}]


@pytest.mark.parametrize(
    ("prompts", "many", "alone"),
    [
        ("abc", ["abc"], True),
        ([1, 2], [[1, 2]], True),
        ((np.int64(1), 2), [(1, 2)], True),
        (range(3), [range(3)], True),
        (np.array([1, 2]), [[1, 2]], True),
        (torch.tensor([[1, 2], [3, 4]]), [[1, 2], [3, 4]], False),
        (["a", [1]], ["a", [1]], False),
        (CHAT, [CHAT], True),
        ([CHAT, "a"], [CHAT, "a"], False),
    ],
)
def test_one_prompt_or_many(prompts, many, alone):
    assert as_batch(prompts) == (many, alone)


@pytest.mark.parametrize("bytes_of_any_kind", [b"a", bytearray(b"a"), memoryview(b"a")])
def test_bytes_are_no_token_ids(bytes_of_any_kind):
    with pytest.raises(TypeError, match="prompts is bytes"):
        as_batch(bytes_of_any_kind)


def test_ids_of_every_form():
    for prompt in ([1, 2], (1, 2), np.array([1, 2], dtype=np.uint8), torch.tensor([1, 2])):
        assert ids_of(MODEL, prompt, 0) == (1, 2)


@pytest.mark.parametrize(
    ("prompt", "error", "words"),
    [
        (b"a", TypeError, "prompt 4 is bytes"),
        (memoryview(b"a"), TypeError, "prompt 4 is bytes"),
        (None, TypeError, "prompt 4 is None"),
        (np.array([0.5]), TypeError, "0.5"),
        ([True], TypeError, "True"),
        ([], ValueError, "prompt 4 is empty"),
        ([9], ValueError, "outside the model's vocabulary"),
        ("a", ValueError, "no tokenizer"),
        (CHAT, ValueError, "no tokenizer"),
    ],
)
def test_a_value_that_is_not_a_prompt_is_refused(prompt, error, words):
    with pytest.raises(error, match=words):
        ids_of(MODEL, prompt, 4)


def test_whole_numbers():
    assert [int_or_none(x) for x in (3, np.int8(3), torch.tensor(3))] == [3, 3, 3]
    assert [int_or_none(x) for x in (True, 1.0, "1", None, np.array([1]), np.float64(1))] == [None] * 6


class Said:
    def __init__(self, size):
        self.vocab_size, self.bos_id = size, None

    def encode(self, text):
        return [self.vocab_size - 1] * len(text)


class Translator(Abilities):
    is_encoder_decoder, vocab_size, source_vocab_size = True, 5, 20
    tokenizer, source_tokenizer = Said(5), Said(20)


def test_prompts_are_read_in_the_vocabulary_of_sources():
    model = Translator()
    assert prompt_vocabulary(model) == (model.source_tokenizer, 20)
    assert ids_of(model, "ab", 0) == (19, 19)
    assert ids_of(model, [19], 0) == (19,)
    assert ids_of(model, "ab", 0, is_target=True) == (4, 4)
    with pytest.raises(ValueError, match="outside the model's vocabulary 0…19"):
        ids_of(model, [20], 0)
    with pytest.raises(ValueError, match="outside the model's vocabulary 0…4"):
        ids_of(model, [5], 0, is_target=True)
    assert prompt_vocabulary(MODEL) == (None, 9)
