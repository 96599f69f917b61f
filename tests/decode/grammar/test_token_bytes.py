import builtins

import pytest

from unspool.decode.hypothesis import Hypothesis
from unspool.decode.transforms.grammar import TokenBytes, parser, token_bytes
from unspool.tokenization.vocabulary import train_bpe, train_characters, train_words

ENDS = frozenset({2})


def test_a_vocabulary_of_bytes_is_there_once():
    text = train_bpe(["a b", "é"], 262)
    found = TokenBytes(text, text.vocab_size, ENDS)
    assert not found.twice
    assert found.special[:3].all()
    assert not found.special[3:].any()
    assert found.pieces()[:4] == [b"<pad>", b"<bos>", b"<eos>", b"<unk>"]
    assert {bytes([n]) for n in range(256)} <= set(found.pieces())
    assert found.known.eos_token == 2
    assert not found.begins(Hypothesis(0, 0, ()))


def test_words_are_there_twice_with_and_without_a_space():
    text = train_words(["ja nein"])
    found = TokenBytes(text, text.vocab_size, ENDS)
    assert found.twice
    assert found.pieces()[:6] == [b"< pad >", b"< bos >", b"< eos >", b" <unk>", b" ja", b" nein"]
    assert found.pieces()[6:] == [b"", b"", b"", b"<unk>", b"ja", b"nein"]
    assert [found.id_of(token, first=True) for token in (2, 4)] == [2, 10]
    assert [found.id_of(token, first=False) for token in (2, 4)] == [2, 4]
    # No word comes without its space: the text of a grammar begins after it.
    assert found.begins(Hypothesis(0, 0, (4,)))
    assert found.begins(Hypothesis(0, 0, ()))


def test_a_mask_over_both_halves_is_one_over_tokens():
    text = train_words(["ja nein"])
    found = TokenBytes(text, text.vocab_size, ENDS)  # six tokens: ids 0…5, and 6…11 for the first
    bits = (1 << 2 | 1 << 5 | 1 << 10).to_bytes(2, "little")
    assert found.allowed(bits, first=True).nonzero()[0].tolist() == [2, 4]
    assert found.allowed(bits, first=False).nonzero()[0].tolist() == [2, 5]


def test_ids_that_only_the_model_has_are_never_allowed():
    text = train_characters(["ab"])
    found = TokenBytes(text, text.vocab_size + 3, ENDS)
    assert found.pieces()[-3:] == [b""] * 3
    matcher = parser().LLMatcher(found.known, parser().LLMatcher.grammar_from_regex("[ab<>a-z]*"))
    assert not found.allowed(matcher.compute_bitmask(), first=False)[-3:].any()


def test_the_same_text_is_read_once():
    text = train_characters(["ab"])
    assert token_bytes(text, 6, ENDS) is token_bytes(text, 6, ENDS)
    assert token_bytes(text, 6, ENDS) is not token_bytes(text, 6, frozenset({1}))


def test_what_is_missing_is_said(monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name == "llguidance":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"needs the package llguidance: pip install 'unspool\[grammar\]'"):
        parser()
