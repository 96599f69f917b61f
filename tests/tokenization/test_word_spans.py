import pytest

from unspool.tokenization.vocabulary import train_bpe, train_characters
from unspool.tokenization.word_alignment import align_words


def test_by_hand():
    text = train_characters(["ab c"])
    found = align_words("ab c", [(0, 2), (3, 4)], text)
    begin = len(found.ids) - 4  # a tokenizer may write BOS first
    assert found.tokens == ((begin, begin + 1), (begin + 3,))
    assert found.ids == tuple(text.encode("ab c"))


def test_sub_words_spell_their_word_and_no_other():
    line = "the lighthouse keeper climbs the lighthouse"
    text = train_bpe([line] * 3, 280)
    places, at = [], 0
    for word in line.split():
        places.append((line.index(word, at), line.index(word, at) + len(word)))
        at = places[-1][1]
    found = align_words(line, places, text)
    spelled = [text.decode([found.ids[t] for t in tokens]).strip() for tokens in found.tokens]
    assert spelled == line.split()


def test_a_word_without_a_token_is_refused():
    with pytest.raises(ValueError, match="no token for the word ''"):
        align_words("ab", [(1, 1)], train_characters(["ab"]))
