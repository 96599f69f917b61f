from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from tokenizers import processors

from unspool.interfaces import TokenizerLike
from unspool.tokenization import Tokenizer, train_bpe
from unspool.tokenization.vocabulary import SPECIALS

CHATML = "{% for m in messages %}<bos>{{ m.role }}:{{ m.content }}<eos>{% endfor %}{{ eos_token }}"


def with_bos(**more: object) -> Tokenizer:
    plain = train_bpe(["the cat"] * 5, 270)
    return Tokenizer(plain.backend, bos_id=1, eos_ids=frozenset({2}), add_bos=True, **more)  # type: ignore[arg-type]


def test_bos_comes_first_exactly_once() -> None:
    codec = with_bos()
    assert codec.encode("") == [1]
    assert codec.encode("the")[0] == 1
    assert codec.encode("the").count(1) == 1
    assert codec.encode("<bos>the") == codec.encode("the")


def test_bos_is_not_doubled_by_a_post_processor() -> None:
    codec = with_bos()
    codec.backend.post_processor = processors.TemplateProcessing(
        single="<bos> $A <eos>", special_tokens=[("<bos>", 1), ("<eos>", 2)]
    )
    assert codec.backend.encode("the").ids[0] == 1
    assert codec.encode("the") == [1, *codec.backend.encode("the", add_special_tokens=False).ids]


def test_special_tokens_in_the_text_are_read_as_such_and_never_shown() -> None:
    codec = with_bos()
    assert codec.encode("the<eos>")[-1] == 2
    assert codec.decode(codec.encode("the<eos> cat")) == "the cat"


def test_truncation_and_padding_of_a_tokenizer_are_switched_off() -> None:
    tokenizer = train_bpe(["the cat"] * 5, 270).backend
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=50)
    codec = Tokenizer(tokenizer)
    assert codec.decode(codec.encode("the cat sat")) == "the cat sat"


def test_wrong_input_is_named(byte_level: Tokenizer) -> None:
    with pytest.raises(TypeError, match="encode takes a string, not a bytes"):
        byte_level.encode(b"x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"lone surrogate \(U\+D83D\) at position 2"):
        byte_level.encode("ab\ud83d")
    with pytest.raises(ValueError, match="-1 is no token id"):
        byte_level.decode([3, -1])
    with pytest.raises(ValueError, match="is no token id"):
        byte_level.decode([2**40])
    with pytest.raises(TypeError):
        byte_level.decode(["a"])  # type: ignore[list-item]


@pytest.mark.parametrize("stop", ["\ud800", "a\udcff"])
def test_a_stop_string_that_no_text_can_hold(byte_level: Tokenizer, stop: str) -> None:
    with pytest.raises(ValueError, match=r"a stop string has a lone surrogate \(U\+D"):
        byte_level.detokenizer(["fine", stop])


@pytest.mark.parametrize("bos_id", [-1, 2**32, 2**63])
def test_a_first_token_may_be_any_number_and_is_refused(bos_id: int) -> None:
    with pytest.raises(ValueError, match=f"bos_id {bos_id} is not among the tokenizer's 265 tokens"):
        Tokenizer(train_bpe(["the cat"] * 5, 270).backend, bos_id=bos_id)


def test_a_first_token_must_exist() -> None:
    tokenizer = train_bpe(["a"], 260).backend
    with pytest.raises(ValueError, match="bos_id is None"):
        Tokenizer(tokenizer, add_bos=True)
    with pytest.raises(ValueError, match="bos_id 999 is not among the tokenizer's 260 tokens"):
        Tokenizer(tokenizer, bos_id=999)


def test_a_long_text_is_read(byte_level: Tokenizer) -> None:
    text = "a" * 200_000 + " " * 200_000 + "the cat " * 20_000
    assert byte_level.decode(byte_level.encode(text)) == text


def test_a_token_is_shown_as_it_stands_in_a_text(byte_level: Tokenizer, byte_fallback: Tokenizer) -> None:
    codec = train_bpe(["the cat sat on the mat"] * 9, 300)
    assert [codec.show(token) for token in codec.encode("the cat")] == ["the", " cat"]
    assert codec.show(2) == "<eos>"
    assert codec.show(100_000) == "<100000>"
    assert [byte_level.show(token) for token in byte_level.encode("€")] == ["\\xe2", "\\x82", "\\xac"]
    assert "".join(map(byte_fallback.show, byte_fallback.encode("a b"))) == "<s> a b"


def test_chat_is_written_and_read_back() -> None:
    codec = with_bos(chat_template=CHATML, bos_token="<bos>", eos_token="<eos>")
    text = codec.chat([{"role": "user", "content": "hi"}])
    assert text == "<bos>user:hi<eos><eos>"
    ids = codec.encode(text)
    assert (ids[0], ids[-2:], ids.count(1)) == (1, [2, 2], 1)


def test_a_model_without_a_chat_template_says_so(byte_level: Tokenizer) -> None:
    with pytest.raises(ValueError, match="no chat template"):
        byte_level.chat([{"role": "user", "content": "hi"}])


def test_the_size_of_the_vocabulary_counts_added_tokens(byte_level: Tokenizer) -> None:
    assert byte_level.vocab_size == 322
    assert byte_level.token_to_id("é日 x") == 321
    assert byte_level.token_to_id("no such token") is None


def test_it_is_a_text(byte_level: Tokenizer) -> None:
    text: TokenizerLike = byte_level
    assert text.decode(text.encode("the cat")) == "the cat"


def test_save_and_load_give_the_same_codec(codec: Tokenizer, tmp_path: Path) -> None:
    told = Tokenizer(codec.backend, 0, frozenset({2, 1}), True, CHATML, "<béos>", "<eos>")
    told.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text.json", "tokenizer.json"]
    assert repr(again) == repr(told)
    assert again.chat_template == CHATML
    for text in ("", "the cat", "日本語 é 👍", " a  b "):
        assert again.encode(text) == told.encode(text)
        assert again.decode(told.encode(text)) == told.decode(told.encode(text))


def test_a_folder_is_made_where_there_is_none(byte_level: Tokenizer, tmp_path: Path) -> None:
    byte_level.save(tmp_path / "new" / "folder")
    assert Tokenizer.load(tmp_path / "new" / "folder").encode("the cat") == byte_level.encode("the cat")


def test_a_folder_that_cannot_be_made_is_named(byte_level: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for wrong in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OSError, match="file"):
            byte_level.save(wrong)


def test_special_tokens_are_read_or_are_text() -> None:
    plain = train_bpe(["a"], 260)
    read = Tokenizer(plain.backend, plain.bos_id, plain.eos_ids)
    assert read.encode("a<eos>") == [*plain.encode("a"), 2]
    assert 2 not in plain.encode("a<eos>")  # though both have one tokenizer
    assert plain.decode(plain.encode("a<eos>")) == "a<eos>"


def test_a_codec_saved_before_there_was_a_choice_reads_special_tokens(tmp_path: Path) -> None:
    codec = train_bpe(["a"], 260)
    codec.save(tmp_path)
    facts = json.loads((tmp_path / "text.json").read_text())
    assert facts.pop("literal") is True
    (tmp_path / "text.json").write_text(json.dumps(facts))
    assert Tokenizer.load(tmp_path).encode("<eos>") == [2]


def test_a_folder_that_cannot_be_loaded_is_named(byte_level: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"text\.json"):
        Tokenizer.load(tmp_path)
    byte_level.save(tmp_path)
    facts = json.loads((tmp_path / "text.json").read_text())

    (tmp_path / "text.json").write_text(json.dumps(facts | {"more": 1}))
    with pytest.raises(ValueError, match=r"text\.json must have the keys bos_id, eos_ids"):
        Tokenizer.load(tmp_path)
    (tmp_path / "text.json").write_text(json.dumps(facts | {"eos_ids": None}))
    with pytest.raises(ValueError, match=r"text\.json has a wrong value"):
        Tokenizer.load(tmp_path)
    (tmp_path / "text.json").write_text(json.dumps(facts))
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match=r"tokenizer\.json is no tokenizer"):
        Tokenizer.load(tmp_path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text=st.text().filter(lambda text: not any(token in text for token in SPECIALS)))
def test_every_text_comes_back(byte_level: Tokenizer, text: str) -> None:
    assert byte_level.decode(byte_level.encode(text)) == text


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_only_broken_bytes_are_decoded_otherwise_than_by_tokenizers(
    codec: Tokenizer, data: st.DataObject
) -> None:
    ids = data.draw(st.lists(st.integers(0, codec.vocab_size - 1), max_size=20))
    theirs = codec.backend.decode(ids)
    assert codec.decode(ids) == theirs or "\ufffd" in theirs


def test_a_continuation_keeps_the_space_that_a_beginning_loses(byte_fallback: Tokenizer) -> None:
    word = byte_fallback.encode("a b")
    for cut in range(1, len(word)):
        watch = byte_fallback.detokenizer(after=word[cut - 1])
        for token in word[cut:]:
            watch = watch.push(token)  # type: ignore[assignment]
        assert byte_fallback.decode(word[:cut]) + watch.close() == byte_fallback.decode(word)
    silent = next(iter(byte_fallback.token_bytes.silent))
    assert byte_fallback.detokenizer(after=silent).last is None
