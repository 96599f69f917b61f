from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from tokenizers import pre_tokenizers

from unspool.tokenization import IncrementalDetokenizer, Tokenizer, train_bpe, train_words
from unspool.tokenization.detokenizer import _BYTES, BackwardDetokenizer

quiet = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def read(detokenizer: IncrementalDetokenizer, ids: list[int]) -> IncrementalDetokenizer:
    for token in ids:
        detokenizer = detokenizer.push(token)
    return detokenizer


def euro(tokenizer: Tokenizer) -> list[int]:
    """€ is E2 82 AC in UTF-8."""
    spellings = {"Ġ": ["â", "Ĥ", "¬"], None: ["<0xE2>", "<0x82>", "<0xAC>"]}
    kind = "Ġ" if tokenizer.token_to_id("Ġ") is not None else None
    ids = [tokenizer.token_to_id(spelling) for spelling in spellings[kind]]
    return [token for token in ids if token is not None]


@pytest.mark.parametrize("kind", ["byte_level", "byte_fallback"])
def test_a_character_is_final_when_its_last_byte_arrives(kind: str, request: pytest.FixtureRequest) -> None:
    tokenizer: Tokenizer = request.getfixturevalue(kind)
    first, second, third = euro(tokenizer)
    one = tokenizer.detokenizer().push(first)
    two = one.push(second)
    assert (one.text, two.text, two.push(third).text) == ("", "", "€")
    assert two.close() == tokenizer.backend.decode([first, second])


def test_an_invalid_byte_run_keeps_its_complete_characters(byte_fallback: Tokenizer) -> None:
    first, second, third = euro(byte_fallback)
    a = byte_fallback.token_to_id("a")
    assert (
        read(byte_fallback.detokenizer(), [first, second, third, first, second, a]).text == "€\ufffd\ufffda"
    )


def test_stop_string_across_tokens_is_cut(byte_fallback: Tokenizer) -> None:
    ids = byte_fallback.encode("the ab.the")[1:]
    detokenizer = byte_fallback.detokenizer(["b.t"])
    shown = []
    for token in ids:
        detokenizer = detokenizer.push(token)
        shown.append((detokenizer.text, detokenizer.finish_reason))
    assert shown == [("the", None), ("the a", None), ("the a", None), ("the a", "stop")]
    assert detokenizer.close() == "the a"
    assert detokenizer.push(ids[0]) is detokenizer


def test_possible_stop_string_is_held_back_until_close(byte_fallback: Tokenizer) -> None:
    detokenizer = read(byte_fallback.detokenizer(["abc"]), byte_fallback.encode("the ab")[1:])
    assert (detokenizer.text, detokenizer.finish_reason, detokenizer.close()) == ("the ", None, "the ab")


def test_two_stop_strings_in_one_token_cut_at_the_earliest(byte_level: Tokenizer) -> None:
    (token,) = [byte_level.token_to_id("<think>")]
    assert token is not None
    assert byte_level.detokenizer(["k>", "hi", "<x"]).push(token).text == "<t"


def test_stop_string_in_the_last_bytes_is_cut(byte_fallback: Tokenizer) -> None:
    detokenizer = (
        byte_fallback.detokenizer(["\ufffd\ufffd"]).push(euro(byte_fallback)[0]).push(euro(byte_fallback)[1])
    )
    assert detokenizer.close() == ""


def test_detokenizer_can_branch(byte_fallback: Tokenizer) -> None:
    stem = byte_fallback.detokenizer().push(byte_fallback.encode("the")[1])
    left = stem.push(byte_fallback.encode("the ab")[2])
    right = stem.push(byte_fallback.encode("the.")[2])
    assert (stem.text, left.text, right.text) == ("the", "the ab", "the.")


def test_special_and_unknown_tokens_add_no_text(tokenizer: Tokenizer) -> None:
    detokenizer = tokenizer.detokenizer()
    assert detokenizer.push(10**6) is detokenizer
    assert all(detokenizer.push(token) is detokenizer for token in tokenizer.token_bytes.silent)


def test_empty_stop_strings_and_bare_strings_are_rejected(byte_level: Tokenizer) -> None:
    with pytest.raises(ValueError, match="stop string is empty"):
        byte_level.detokenizer(["a", ""])
    with pytest.raises(TypeError, match="list of strings"):
        byte_level.detokenizer("abc")
    with pytest.raises(TypeError, match="list of strings"):
        byte_level.detokenizer([1])  # type: ignore[list-item]


@quiet
@given(data=st.data())
def test_incremental_detokenization_equals_decode(tokenizer: Tokenizer, data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size + 2), max_size=24))
    detokenizer, shown = tokenizer.detokenizer(), ""
    for count, token in enumerate(ids, start=1):
        detokenizer = detokenizer.push(token)
        assert detokenizer.text.startswith(shown)
        shown = detokenizer.text
        assert detokenizer.close() == tokenizer.decode(ids[:count])
    everything = tokenizer.backend.decode(ids, skip_special_tokens=True)
    if "\ufffd" not in everything:
        assert detokenizer.text == detokenizer.close() == everything


@quiet
@given(ids=st.lists(st.integers(0, 321), max_size=24))
def test_byte_level_detokenization_equals_tokenizers(byte_level: Tokenizer, ids: list[int]) -> None:
    assert read(byte_level.detokenizer(), ids).close() == byte_level.backend.decode(ids)


@quiet
@given(data=st.data())
def test_stop_strings_cut_at_the_earliest_match(tokenizer: Tokenizer, data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=16))
    everything = tokenizer.decode(ids).replace("\ufffd", "")
    pieces = st.tuples(st.integers(0, len(everything)), st.integers(1, 5)).map(
        lambda p: everything[p[0] : sum(p)]
    )
    stop = data.draw(st.lists(st.one_of(pieces, st.text("ab the▁", max_size=3)).filter(bool), max_size=3))
    detokenizer = tokenizer.detokenizer(stop)
    for count, token in enumerate(ids, start=1):
        detokenizer = detokenizer.push(token)
        text = tokenizer.decode(ids[:count])
        stops = [at for at in map(text.find, stop) if at >= 0]
        if stops:
            assert (detokenizer.finish_reason, detokenizer.text, detokenizer.close()) == (
                "stop",
                text[: min(stops)],
                text[: min(stops)],
            )
            return
        assert detokenizer.finish_reason is None
        assert detokenizer.close() == text
        held = max(map(len, stop), default=1) - 1
        assert len(text.rstrip("\ufffd")) - held <= len(detokenizer.text) <= len(text)


BPE_BYTES = train_bpe(["a"], 260).token_bytes


def test_byte_alphabet_equals_tokenizers() -> None:
    assert set(_BYTES) == set(pre_tokenizers.ByteLevel.alphabet())
    assert sorted(_BYTES.values()) == list(range(256))
    assert (_BYTES["A"], _BYTES["Ġ"], _BYTES["Ċ"], _BYTES["Ã"]) == (0x41, 0x20, 0x0A, 0xC3)


def test_token_bytes_of_byte_level_bpe(byte_level: Tokenizer) -> None:
    pieces, of = byte_level.token_bytes, byte_level.token_to_id
    assert pieces(None, of("Ġ")) == b" "
    assert pieces(of("a"), of("Ã")) == b"\xc3"
    assert pieces(of("a"), of("<think>")) == b"<think>"
    assert pieces(of("a"), of("é日 x")) == "é日 x".encode()


def test_token_bytes_strip_the_leading_space_once(byte_fallback: Tokenizer) -> None:
    pieces, of = byte_fallback.token_bytes, byte_fallback.token_to_id
    assert (pieces(None, of("▁a")), pieces(of("b"), of("▁a"))) == (b"a", b" a")
    assert (pieces(None, of("<0x20>")), pieces(of("b"), of("<0x20>"))) == (b"", b" ")
    assert (pieces(None, of("▁")), pieces(of("▁"), of("▁"))) == (b"", b" ")


def test_special_and_unknown_tokens_have_no_bytes(byte_level: Tokenizer) -> None:
    assert byte_level.token_bytes(None, 1) is None
    assert byte_level.token_bytes(None, 10**6) is None


def test_invalid_bytes_are_replaced_and_the_rest_is_kept(byte_fallback: Tokenizer) -> None:
    names = ["<0xE2>", "<0x82>", "<0xAC>", "<0xE2>", "<0x82>", "a", "<0xFF>"]
    ids = [byte_fallback.token_to_id(name) for name in names]
    assert (
        byte_fallback.token_bytes.join([token for token in ids if token is not None])
        == "€\ufffd\ufffda\ufffd"
    )


def test_joined_token_bytes_equal_decode(tokenizer: Tokenizer) -> None:
    ids = [token for token in range(tokenizer.vocab_size) if token not in tokenizer.token_bytes.silent]
    assert tokenizer.token_bytes.join(ids) == tokenizer.decode(ids)


@given(data=st.binary(max_size=40), cuts=st.lists(st.integers(0, 40)))
def test_characters_are_complete_for_any_split_of_the_bytes(data: bytes, cuts: list[int]) -> None:
    text, rest, at = "", b"", 0
    for cut in [*sorted(min(cut, len(data)) for cut in cuts), len(data)]:
        new, rest = BPE_BYTES.characters(rest + data[at:cut])
        text, at = text + new, cut
        assert len(rest) <= 3
    assert text + BPE_BYTES.characters(rest, final=True)[0] == data.decode("utf-8", "replace")


WORDS = replace(train_words(["one two three four"]), right_to_left=True)
BYTES = replace(train_bpe(["abab abab €"] * 3, 270), right_to_left=True)


def read_backward(text: Tokenizer, ids: list[int], *stop: str) -> BackwardDetokenizer:
    reader = text.detokenizer(stop)
    assert isinstance(reader, BackwardDetokenizer)
    for token in ids:
        reader = reader.push(token)
    return reader


def test_backward_detokenizer_by_hand() -> None:
    ids = WORDS.encode("one two three")
    assert ids == WORDS.source_tokenizer.encode("one two three")[::-1]
    assert WORDS.decode(ids) == "one two three"
    reader = read_backward(WORDS, ids[:2])
    assert (reader.text, reader.close(), reader.finish_reason) == ("", "two three", None)


def test_backward_detokenizer_keeps_the_text_after_a_stop_string() -> None:
    reader = read_backward(WORDS, WORDS.encode("four one two three"), "one")
    assert reader.finish_reason == "stop"
    assert reader.close() == " two three"


@given(st.text("ab €", max_size=20))
def test_right_to_left_text_round_trips(line: str) -> None:
    assert BYTES.decode(BYTES.encode(line)) == line
    assert read_backward(BYTES, BYTES.encode(line)).close() == line
    assert sorted(BYTES.encode(line)) == sorted(BYTES.source_tokenizer.encode(line))


def test_right_to_left_tokenizer_is_saved_and_reads_sources_left_to_right(tmp_path: object) -> None:
    WORDS.save(str(tmp_path))
    again = Tokenizer.load(str(tmp_path))
    assert again.right_to_left
    assert again.encode("one two") == WORDS.encode("one two")
    assert not again.source_tokenizer.right_to_left
    assert again.source_tokenizer.source_tokenizer is again.source_tokenizer


def test_files_without_right_to_left_read_left_to_right(tmp_path: object) -> None:
    import json
    from pathlib import Path

    folder = Path(str(tmp_path))
    WORDS.save(folder)
    facts = json.loads((folder / "tokenizer_settings.json").read_text())
    del facts["right_to_left"]
    (folder / "tokenizer_settings.json").write_text(json.dumps(facts))
    assert not Tokenizer.load(folder).right_to_left


@pytest.mark.parametrize("stop", [(), ("x",)])
def test_backward_special_tokens_show_nothing(stop: tuple[str, ...]) -> None:
    assert read_backward(WORDS, [2], *stop).close() == ""
