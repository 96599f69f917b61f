from __future__ import annotations

from hypothesis import given, strategies as st
from tokenizers import pre_tokenizers

from unspool.tokenization import Tokenizer, train_bpe
from unspool.tokenization.detokenizer import _BYTES

BYTE_LEVEL = train_bpe(["a"], 260).token_bytes


def test_the_byte_alphabet_is_that_of_tokenizers() -> None:
    assert set(_BYTES) == set(pre_tokenizers.ByteLevel.alphabet())
    assert sorted(_BYTES.values()) == list(range(256))
    assert (_BYTES["A"], _BYTES["Ġ"], _BYTES["Ċ"], _BYTES["Ã"]) == (0x41, 0x20, 0x0A, 0xC3)


def test_a_piece_is_the_bytes_that_a_token_adds(byte_level: Tokenizer) -> None:
    pieces, of = byte_level.token_bytes, byte_level.token_to_id
    assert pieces(None, of("Ġ")) == b" "
    assert pieces(of("a"), of("Ã")) == b"\xc3"
    assert pieces(of("a"), of("<think>")) == b"<think>"
    assert pieces(of("a"), of("é日 x")) == "é日 x".encode()


def test_the_first_space_is_taken_off_once(byte_fallback: Tokenizer) -> None:
    pieces, of = byte_fallback.token_bytes, byte_fallback.token_to_id
    assert (pieces(None, of("▁a")), pieces(of("b"), of("▁a"))) == (b"a", b" a")
    assert (pieces(None, of("<0x20>")), pieces(of("b"), of("<0x20>"))) == (b"", b" ")
    assert (pieces(None, of("▁")), pieces(of("▁"), of("▁"))) == (b"", b" ")


def test_special_and_unknown_tokens_are_not_visible(byte_level: Tokenizer) -> None:
    assert byte_level.token_bytes(None, 1) is None
    assert byte_level.token_bytes(None, 10**6) is None


def test_what_is_broken_is_marked_and_the_rest_is_kept(byte_fallback: Tokenizer) -> None:
    names = ["<0xE2>", "<0x82>", "<0xAC>", "<0xE2>", "<0x82>", "a", "<0xFF>"]
    ids = [byte_fallback.token_to_id(name) for name in names]
    assert (
        byte_fallback.token_bytes.join([token for token in ids if token is not None])
        == "€\ufffd\ufffda\ufffd"
    )


def test_words_are_written_with_spaces_between(codec: Tokenizer) -> None:
    ids = [token for token in range(codec.vocab_size) if token not in codec.token_bytes.silent]
    assert codec.token_bytes.join(ids) == codec.decode(ids)


@given(data=st.binary(max_size=40), cuts=st.lists(st.integers(0, 40)))
def test_characters_come_whole_wherever_the_bytes_are_cut(data: bytes, cuts: list[int]) -> None:
    text, rest, at = "", b"", 0
    for cut in [*sorted(min(cut, len(data)) for cut in cuts), len(data)]:
        new, rest = BYTE_LEVEL.characters(rest + data[at:cut])
        text, at = text + new, cut
        assert len(rest) <= 3
    assert text + BYTE_LEVEL.characters(rest, final=True)[0] == data.decode("utf-8", "replace")
