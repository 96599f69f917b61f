import pytest
from hypothesis import given, settings, strategies as st
from tokenizers import normalizers

from unspool.tokenization import train_bpe, train_characters, train_words
from unspool.tokenization.word_alignment import align_words, tokenize_words


def test_align_words_by_hand():
    text = train_characters(["ab c"])
    result = align_words("ab c", [(0, 2), (3, 4)], text)
    begin = len(result.ids) - 4  # a tokenizer may write BOS first
    assert result.tokens == ((begin, begin + 1), (begin + 3,))
    assert result.ids == tuple(text.encode("ab c"))


def test_aligned_tokens_spell_their_word():
    line = "the lighthouse keeper climbs the lighthouse"
    text = train_bpe([line] * 3, 280)
    places, at = [], 0
    for word in line.split():
        places.append((line.index(word, at), line.index(word, at) + len(word)))
        at = places[-1][1]
    result = align_words(line, places, text)
    spelled = [text.decode([result.ids[t] for t in tokens]).strip() for tokens in result.tokens]
    assert spelled == line.split()


def test_align_words_rejects_a_word_without_a_token():
    with pytest.raises(ValueError, match="no token for the word ''"):
        align_words("ab", [(1, 1)], train_characters(["ab"]))


LINES = ["the cat sat on the mat", "the café was naïve 日本語 x\u00a0y  z"]
TOKENIZERS = {
    "bpe": train_bpe(LINES, 270, min_count=2),
    "words": train_words(LINES),
    "characters": train_characters(LINES),
}


def test_tokenize_words_by_hand():
    (result,) = tokenize_words(["the  cat"], TOKENIZERS["characters"])
    assert (result.words, result.firsts) == (["the", "cat"], [0, 5])
    (result,) = tokenize_words(["the  cat"], TOKENIZERS["words"])
    assert (result.words, result.firsts, len(result.ids)) == (["the", "cat"], [0, 1], 2)


def test_first_tokens_of_words_of_several_tokens():
    tokenizer = TOKENIZERS["bpe"]
    (result,) = tokenize_words(["the unheard-of café"], tokenizer)
    assert result.words == ["the", "unheard-of", "café"]
    assert len(result.ids) > 10
    ends = [*result.firsts[1:], len(result.ids)]
    spelt = [tokenizer.decode(result.ids[a:b]).strip() for a, b in zip(result.firsts, ends, strict=True)]
    assert spelt == result.words


@pytest.mark.parametrize("kind", TOKENIZERS)
@settings(deadline=None)
@given(st.text(st.sampled_from("abc é日😀\t\n\u00a0.,-"), max_size=30))
def test_every_word_has_a_distinct_first_token(kind, line):
    tokenizer = TOKENIZERS[kind]
    (result,) = tokenize_words([line], tokenizer)
    assert result.words == line.split()
    assert result.ids == tokenizer.encode(line)
    assert sorted(set(result.firsts)) == result.firsts
    assert all(0 <= first < len(result.ids) for first in result.firsts)


def test_tokenize_words_rejects_a_word_without_a_token():
    tokenizer = train_characters(["ab c"])
    tokenizer.backend.normalizer = normalizers.Replace("c", "")
    with pytest.raises(ValueError, match="no token for the word 'c'"):
        list(tokenize_words(["ab c"], tokenizer))
