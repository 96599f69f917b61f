import pytest
from hypothesis import given, settings, strategies as st
from tokenizers import normalizers

from unspool.tokenization import train_bpe, train_characters, train_words
from unspool.tokenization.word_alignment import tokenize_words

LINES = ["the cat sat on the mat", "the café was naïve 日本語 x\u00a0y  z"]
CODECS = {
    "bpe": train_bpe(LINES, 270, min_count=2),
    "words": train_words(LINES),
    "characters": train_characters(LINES),
}


def test_by_hand():
    (found,) = tokenize_words(["the  cat"], CODECS["characters"])
    assert (found.words, found.firsts) == (["the", "cat"], [0, 5])
    (found,) = tokenize_words(["the  cat"], CODECS["words"])
    assert (found.words, found.firsts, len(found.ids)) == (["the", "cat"], [0, 1], 2)


def test_words_of_several_tokens_have_one_that_stands_for_them():
    codec = CODECS["bpe"]
    (found,) = tokenize_words(["the unheard-of café"], codec)
    assert found.words == ["the", "unheard-of", "café"]
    assert len(found.ids) > 10
    ends = [*found.firsts[1:], len(found.ids)]
    spelt = [codec.decode(found.ids[a:b]).strip() for a, b in zip(found.firsts, ends, strict=True)]
    assert spelt == found.words


@pytest.mark.parametrize("kind", CODECS)
@settings(deadline=None)
@given(st.text(st.sampled_from("abc é日😀\t\n\u00a0.,-"), max_size=30))
def test_every_word_has_a_token_of_its_own(kind, line):
    codec = CODECS[kind]
    (found,) = tokenize_words([line], codec)
    assert found.words == line.split()
    assert found.ids == codec.encode(line)
    assert sorted(set(found.firsts)) == found.firsts
    assert all(0 <= first < len(found.ids) for first in found.firsts)


def test_a_word_that_the_tokenizer_leaves_out_is_said():
    codec = train_characters(["ab c"])
    codec.backend.normalizer = normalizers.Replace("c", "")
    with pytest.raises(ValueError, match="no token for the word 'c'"):
        list(tokenize_words(["ab c"], codec))
