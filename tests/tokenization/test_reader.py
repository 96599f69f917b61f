from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from unspool.interfaces import Detokenizer
from unspool.tokenization import IncrementalDetokenizer, Tokenizer

quiet = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def read(watch: IncrementalDetokenizer, ids: list[int]) -> IncrementalDetokenizer:
    for token in ids:
        watch = watch.push(token)
    return watch


def euro(codec: Tokenizer) -> list[int]:
    """€ is E2 82 AC in UTF-8."""
    spellings = {"Ġ": ["â", "Ĥ", "¬"], None: ["<0xE2>", "<0x82>", "<0xAC>"]}
    kind = "Ġ" if codec.token_to_id("Ġ") is not None else None
    ids = [codec.token_to_id(spelling) for spelling in spellings[kind]]
    return [token for token in ids if token is not None]


@pytest.mark.parametrize("kind", ["byte_level", "byte_fallback"])
def test_a_character_shows_when_its_last_byte_has_come(kind: str, request: pytest.FixtureRequest) -> None:
    codec: Tokenizer = request.getfixturevalue(kind)
    first, second, third = euro(codec)
    one = codec.detokenizer().push(first)
    two = one.push(second)
    assert (one.text, two.text, two.push(third).text) == ("", "", "€")
    assert two.close() == codec.backend.decode([first, second])


def test_byte_by_byte_a_broken_run_keeps_its_whole_characters(byte_fallback: Tokenizer) -> None:
    first, second, third = euro(byte_fallback)
    a = byte_fallback.token_to_id("a")
    assert (
        read(byte_fallback.detokenizer(), [first, second, third, first, second, a]).text == "€\ufffd\ufffda"
    )


def test_a_stop_string_is_found_across_tokens_and_cut(byte_fallback: Tokenizer) -> None:
    ids = byte_fallback.encode("the ab.the")[1:]
    watch = byte_fallback.detokenizer(["b.t"])
    shown = []
    for token in ids:
        watch = watch.push(token)
        shown.append((watch.text, watch.finish_reason))
    assert shown == [("the", None), ("the a", None), ("the a", None), ("the a", "stop")]
    assert watch.close() == "the a"
    assert watch.push(ids[0]) is watch


def test_what_might_become_a_stop_string_is_held_back_and_given_at_the_end(byte_fallback: Tokenizer) -> None:
    watch = read(byte_fallback.detokenizer(["abc"]), byte_fallback.encode("the ab")[1:])
    assert (watch.text, watch.finish_reason, watch.close()) == ("the ", None, "the ab")


def test_two_stop_strings_in_one_token_cut_at_the_first(byte_level: Tokenizer) -> None:
    (token,) = [byte_level.token_to_id("<think>")]
    assert token is not None
    assert byte_level.detokenizer(["k>", "hi", "<x"]).push(token).text == "<t"


def test_a_stop_string_in_the_flushed_tail_is_cut(byte_fallback: Tokenizer) -> None:
    watch = (
        byte_fallback.detokenizer(["\ufffd\ufffd"]).push(euro(byte_fallback)[0]).push(euro(byte_fallback)[1])
    )
    assert watch.close() == ""


def test_a_beam_may_fork(byte_fallback: Tokenizer) -> None:
    stem = byte_fallback.detokenizer().push(byte_fallback.encode("the")[1])
    left = stem.push(byte_fallback.encode("the ab")[2])
    right = stem.push(byte_fallback.encode("the.")[2])
    assert (stem.text, left.text, right.text) == ("the", "the ab", "the.")


def test_special_and_unknown_tokens_show_nothing(codec: Tokenizer) -> None:
    watch = codec.detokenizer()
    assert watch.push(10**6) is watch
    assert all(watch.push(token) is watch for token in codec.token_bytes.silent)


def test_empty_stop_strings_and_bare_strings_are_refused(byte_level: Tokenizer) -> None:
    with pytest.raises(ValueError, match="stop string is empty"):
        byte_level.detokenizer(["a", ""])
    with pytest.raises(TypeError, match="list of strings"):
        byte_level.detokenizer("abc")
    with pytest.raises(TypeError, match="list of strings"):
        byte_level.detokenizer([1])  # type: ignore[list-item]


def test_it_is_a_watch(byte_level: Tokenizer) -> None:
    watch: Detokenizer = byte_level.detokenizer()
    assert watch.close() == ""


@quiet
@given(data=st.data())
def test_reading_is_decoding_everything_at_once(codec: Tokenizer, data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(0, codec.vocab_size + 2), max_size=24))
    watch, shown = codec.detokenizer(), ""
    for count, token in enumerate(ids, start=1):
        watch = watch.push(token)
        assert watch.text.startswith(shown)
        shown = watch.text
        assert watch.close() == codec.decode(ids[:count])
    everything = codec.backend.decode(ids, skip_special_tokens=True)
    if "\ufffd" not in everything:
        assert watch.text == watch.close() == everything


@quiet
@given(ids=st.lists(st.integers(0, 321), max_size=24))
def test_byte_level_reading_is_what_tokenizers_says(byte_level: Tokenizer, ids: list[int]) -> None:
    assert read(byte_level.detokenizer(), ids).close() == byte_level.backend.decode(ids)


@quiet
@given(data=st.data())
def test_stop_strings_behave_as_find(codec: Tokenizer, data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(0, codec.vocab_size - 1), max_size=16))
    whole = codec.decode(ids).replace("\ufffd", "")
    pieces = st.tuples(st.integers(0, len(whole)), st.integers(1, 5)).map(lambda p: whole[p[0] : sum(p)])
    stop = data.draw(st.lists(st.one_of(pieces, st.text("ab the▁", max_size=3)).filter(bool), max_size=3))
    watch = codec.detokenizer(stop)
    for count, token in enumerate(ids, start=1):
        watch = watch.push(token)
        text = codec.decode(ids[:count])
        found = [at for at in map(text.find, stop) if at >= 0]
        if found:
            assert (watch.finish_reason, watch.text, watch.close()) == (
                "stop",
                text[: min(found)],
                text[: min(found)],
            )
            return
        assert watch.finish_reason is None
        assert watch.close() == text
        held = max(map(len, stop), default=1) - 1
        assert len(text.rstrip("\ufffd")) - held <= len(watch.text) <= len(text)
