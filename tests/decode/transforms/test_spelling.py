import pytest

from unspool.decode.hypothesis import Job
from unspool.decode.transforms import BadWords, SequenceBias
from unspool.decode.transforms.biases import spelled
from unspool.testing import TableModel

JOB = Job(((1,),), (5,), (0,))


class Letters:
    """One letter per token, and a token before every text."""

    bos_id, eos_ids = 0, frozenset()

    def encode(self, text):
        return [0, *(" abcd".index(letter) + 1 for letter in text)]


MODEL = TableModel(lambda row: [1 / 6] * 6, tokenizer=Letters())


def test_words_become_tokens_without_what_begins_a_text():
    assert spelled("ab", MODEL, "word") == (2, 3)
    assert spelled((4, 5), MODEL, "word") == (4, 5)
    with pytest.raises(ValueError, match="the word 'ab' needs a tokenizer"):
        spelled("ab", TableModel(lambda row: [0.5, 0.5]), "word")


def test_bad_words_are_banned_with_and_without_a_space_before_them():
    assert BadWords(("a", (5,))).bind(MODEL, JOB) == BadWords([(2,), (1, 2), (5,)])
    assert BadWords((" a",)).bind(MODEL, JOB) == BadWords([(1, 2)])


def test_a_bias_is_given_as_it_stands():
    assert SequenceBias({"ab": 1.0, (3,): 2.0}).bind(MODEL, JOB) == SequenceBias({(2, 3): 1.0, (3,): 2.0})
