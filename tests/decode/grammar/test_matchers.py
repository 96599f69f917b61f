import numpy as np
import pytest

from unspool.decode.hypothesis import Hypothesis
from unspool.decode.transforms.grammar import Matchers, TokenBytes
from unspool.tokenization.vocabulary import train_bpe, train_characters, train_words

EOS = 2
LETTERS = train_characters(["abc"])  # a, b, c are 4, 5, 6
WORDS = train_words(["ja nein"])  # ja is 4, nein is 5


def matchers(text, regex, kept=100):
    return Matchers(f"start: /{regex}/", TokenBytes(text, text.vocab_size, frozenset({EOS})), kept)


def after(found, *rows):
    paths = [Hypothesis(0, 0, (4,), tuple(tokens)) for tokens in rows]
    return [np.flatnonzero(row).tolist() for row in found.allowed(paths)]


def test_by_hand():
    found = matchers(LETTERS, "a(b|bc)")
    assert after(found, [], [4], [4, 5], [4, 5, 6]) == [[4], [5], [EOS, 6], [EOS]]


def test_paths_fork_and_go_back():
    found = matchers(LETTERS, "(ab|ba)*")
    assert after(found, [4], [5]) == [[5], [4]]
    assert after(found, [4, 5], [5, 4]) == [[EOS, 4, 5]] * 2
    assert after(found, [4]) == [[5]]  # as if nothing had been tried


@pytest.mark.parametrize("kept", [1, 2, 100])
def test_what_is_forgotten_is_read_anew(kept):
    found = matchers(LETTERS, "(abc)*", kept)
    rows = [(4, 5, 6, 4, 5)[:n] for n in range(6)]
    for _ in range(2):
        assert after(found, *reversed(rows)) == [[6], [5], [EOS, 4], [6], [5], [EOS, 4]]


def test_every_spelling_of_what_must_come_counts():
    text = train_bpe(["abc abc abc"], 262)
    found = matchers(text, "abc")
    assert [text.show(token) for token in after(found, [])[0]] == ["a", "ab", "abc"]


def test_the_first_word_comes_without_its_space():
    assert after(matchers(WORDS, "ja( nein)*"), [], [4], [4, 5]) == [[4], [EOS, 5], [EOS, 5]]


def test_a_text_that_left_the_grammar_is_refused():
    with pytest.raises(
        ValueError,
        match=r"token 6 \('c'\) is none that the grammar allows.* put Grammar after all other transforms",
    ):
        after(matchers(LETTERS, "ab"), [6])


def test_a_dead_end_of_the_vocabulary_is_refused():
    found = matchers(LETTERS, "a(xyz)")
    assert after(found, []) == [[4]]
    with pytest.raises(ValueError, match="after 'a' the grammar allows nothing that this model's vocabulary"):
        after(found, [4])


def test_a_grammar_that_needs_too_much_is_refused():
    with pytest.raises(ValueError, match="the grammar cannot be used"):
        Matchers("start: nowhere", TokenBytes(LETTERS, 7, frozenset({EOS})), 9)
