from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from unspool.protocols import TextWatch
from unspool.text import Codec, Reader

quiet = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def read(watch: Reader, ids: list[int]) -> Reader:
    for token in ids:
        watch = watch.push(token)
    return watch


def euro(codec: Codec) -> list[int]:
    """€ is E2 82 AC in UTF-8."""
    spellings = {"Ġ": ["â", "Ĥ", "¬"], None: ["<0xE2>", "<0x82>", "<0xAC>"]}
    kind = "Ġ" if codec.token_id("Ġ") is not None else None
    ids = [codec.token_id(spelling) for spelling in spellings[kind]]
    return [token for token in ids if token is not None]


@pytest.mark.parametrize("kind", ["byte_level", "byte_fallback"])
def test_a_character_shows_when_its_last_byte_has_come(kind: str, request: pytest.FixtureRequest) -> None:
    codec: Codec = request.getfixturevalue(kind)
    first, second, third = euro(codec)
    one = codec.watch().push(first)
    two = one.push(second)
    assert (one.text, two.text, two.push(third).text) == ("", "", "€")
    assert two.close() == codec.tokenizer.decode([first, second])


def test_byte_by_byte_a_broken_run_keeps_its_whole_characters(byte_fallback: Codec) -> None:
    first, second, third = euro(byte_fallback)
    a = byte_fallback.token_id("a")
    assert read(byte_fallback.watch(), [first, second, third, first, second, a]).text == "€\ufffd\ufffda"


def test_a_stop_string_is_found_across_tokens_and_cut(byte_fallback: Codec) -> None:
    ids = byte_fallback.encode("the ab.the")[1:]
    watch = byte_fallback.watch(["b.t"])
    shown = []
    for token in ids:
        watch = watch.push(token)
        shown.append((watch.text, watch.finish))
    assert shown == [("the", None), ("the a", None), ("the a", None), ("the a", "stop")]
    assert watch.close() == "the a"
    assert watch.push(ids[0]) is watch


def test_what_might_become_a_stop_string_is_held_back_and_given_at_the_end(byte_fallback: Codec) -> None:
    watch = read(byte_fallback.watch(["abc"]), byte_fallback.encode("the ab")[1:])
    assert (watch.text, watch.finish, watch.close()) == ("the ", None, "the ab")


def test_two_stop_strings_in_one_token_cut_at_the_first(byte_level: Codec) -> None:
    (token,) = [byte_level.token_id("<think>")]
    assert token is not None
    assert byte_level.watch(["k>", "hi", "<x"]).push(token).text == "<t"


def test_a_stop_string_in_the_flushed_tail_is_cut(byte_fallback: Codec) -> None:
    watch = byte_fallback.watch(["\ufffd\ufffd"]).push(euro(byte_fallback)[0]).push(euro(byte_fallback)[1])
    assert watch.close() == ""


def test_a_beam_may_fork(byte_fallback: Codec) -> None:
    stem = byte_fallback.watch().push(byte_fallback.encode("the")[1])
    left = stem.push(byte_fallback.encode("the ab")[2])
    right = stem.push(byte_fallback.encode("the.")[2])
    assert (stem.text, left.text, right.text) == ("the", "the ab", "the.")


def test_special_and_unknown_tokens_show_nothing(codec: Codec) -> None:
    watch = codec.watch()
    assert watch.push(10**6) is watch
    assert all(watch.push(token) is watch for token in codec.pieces.silent)


def test_empty_stop_strings_and_bare_strings_are_refused(byte_level: Codec) -> None:
    with pytest.raises(ValueError, match="stop string is empty"):
        byte_level.watch(["a", ""])
    with pytest.raises(TypeError, match="list of strings"):
        byte_level.watch("abc")
    with pytest.raises(TypeError, match="list of strings"):
        byte_level.watch([1])  # type: ignore[list-item]


def test_it_is_a_watch(byte_level: Codec) -> None:
    watch: TextWatch = byte_level.watch()
    assert watch.close() == ""


@quiet
@given(data=st.data())
def test_reading_is_decoding_everything_at_once(codec: Codec, data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(0, codec.vocab_size + 2), max_size=24))
    watch, shown = codec.watch(), ""
    for count, token in enumerate(ids, start=1):
        watch = watch.push(token)
        assert watch.text.startswith(shown)
        shown = watch.text
        assert watch.close() == codec.decode(ids[:count])
    everything = codec.tokenizer.decode(ids, skip_special_tokens=True)
    if "\ufffd" not in everything:
        assert watch.text == watch.close() == everything


@quiet
@given(ids=st.lists(st.integers(0, 321), max_size=24))
def test_byte_level_reading_is_what_tokenizers_says(byte_level: Codec, ids: list[int]) -> None:
    assert read(byte_level.watch(), ids).close() == byte_level.tokenizer.decode(ids)


@quiet
@given(data=st.data())
def test_stop_strings_behave_as_find(codec: Codec, data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(0, codec.vocab_size - 1), max_size=16))
    whole = codec.decode(ids).replace("\ufffd", "")
    pieces = st.tuples(st.integers(0, len(whole)), st.integers(1, 5)).map(lambda p: whole[p[0] : sum(p)])
    stop = data.draw(st.lists(st.one_of(pieces, st.text("ab the▁", max_size=3)).filter(bool), max_size=3))
    watch = codec.watch(stop)
    for count, token in enumerate(ids, start=1):
        watch = watch.push(token)
        text = codec.decode(ids[:count])
        found = [at for at in map(text.find, stop) if at >= 0]
        if found:
            assert (watch.finish, watch.text, watch.close()) == (
                "stop",
                text[: min(found)],
                text[: min(found)],
            )
            return
        assert watch.finish is None
        assert watch.close() == text
        held = max(map(len, stop), default=1) - 1
        assert len(text.rstrip("\ufffd")) - held <= len(watch.text) <= len(text)
