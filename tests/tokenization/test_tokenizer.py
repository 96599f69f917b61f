from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from tokenizers import processors

from unspool.tokenization import Tokenizer, train_bpe
from unspool.tokenization.vocabulary import SPECIALS

CHATML = "{% for m in messages %}<bos>{{ m.role }}:{{ m.content }}<eos>{% endfor %}{{ eos_token }}"


def with_bos(**more: object) -> Tokenizer:
    plain = train_bpe(["the cat"] * 5, 270)
    return Tokenizer(plain.backend, bos_id=1, eos_ids=frozenset({2}), add_bos=True, **more)  # type: ignore[arg-type]


def test_encode_writes_bos_exactly_once() -> None:
    tokenizer = with_bos()
    assert tokenizer.encode("") == [1]
    assert tokenizer.encode("the")[0] == 1
    assert tokenizer.encode("the").count(1) == 1
    assert tokenizer.encode("<bos>the") == tokenizer.encode("the")


def test_post_processor_does_not_double_bos() -> None:
    tokenizer = with_bos()
    tokenizer.backend.post_processor = processors.TemplateProcessing(
        single="<bos> $A <eos>", special_tokens=[("<bos>", 1), ("<eos>", 2)]
    )
    assert tokenizer.backend.encode("the").ids[0] == 1
    assert tokenizer.encode("the") == [1, *tokenizer.backend.encode("the", add_special_tokens=False).ids]


def test_special_tokens_in_text_are_encoded_and_not_decoded() -> None:
    tokenizer = with_bos()
    assert tokenizer.encode("the<eos>")[-1] == 2
    assert tokenizer.decode(tokenizer.encode("the<eos> cat")) == "the cat"


def test_truncation_and_padding_are_turned_off() -> None:
    backend = train_bpe(["the cat"] * 5, 270).backend
    backend.enable_truncation(3)
    backend.enable_padding(length=50)
    tokenizer = Tokenizer(backend)
    assert tokenizer.decode(tokenizer.encode("the cat sat")) == "the cat sat"


def test_wrong_input_is_reported(byte_level: Tokenizer) -> None:
    with pytest.raises(TypeError, match="encode takes a string, not a bytes"):
        byte_level.encode(b"x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"lone surrogate \(U\+D83D\) at position 2"):
        byte_level.encode("ab\ud83d")
    with pytest.raises(ValueError, match="-1 is not a token id"):
        byte_level.decode([3, -1])
    with pytest.raises(ValueError, match="is not a token id"):
        byte_level.decode([2**40])
    with pytest.raises(TypeError):
        byte_level.decode(["a"])  # type: ignore[list-item]


@pytest.mark.parametrize("stop", ["\ud800", "a\udcff"])
def test_stop_string_with_a_lone_surrogate_is_rejected(byte_level: Tokenizer, stop: str) -> None:
    with pytest.raises(ValueError, match=r"a stop string has a lone surrogate \(U\+D"):
        byte_level.detokenizer(["fine", stop])


@pytest.mark.parametrize("bos_id", [-1, 2**32, 2**63])
def test_bos_id_out_of_range_is_rejected(bos_id: int) -> None:
    with pytest.raises(ValueError, match=f"bos_id {bos_id} is not among the tokenizer's 265 tokens"):
        Tokenizer(train_bpe(["the cat"] * 5, 270).backend, bos_id=bos_id)


def test_bos_id_must_be_in_the_vocabulary() -> None:
    backend = train_bpe(["a"], 260).backend
    with pytest.raises(ValueError, match="bos_id is None"):
        Tokenizer(backend, add_bos=True)
    with pytest.raises(ValueError, match="bos_id 999 is not among the tokenizer's 260 tokens"):
        Tokenizer(backend, bos_id=999)


def test_a_long_text_round_trips(byte_level: Tokenizer) -> None:
    text = "a" * 200_000 + " " * 200_000 + "the cat " * 20_000
    assert byte_level.decode(byte_level.encode(text)) == text


def test_show_gives_readable_tokens(byte_level: Tokenizer, byte_fallback: Tokenizer) -> None:
    tokenizer = train_bpe(["the cat sat on the mat"] * 9, 300)
    assert [tokenizer.show(token) for token in tokenizer.encode("the cat")] == ["the", " cat"]
    assert tokenizer.show(2) == "<eos>"
    assert tokenizer.show(100_000) == "<100000>"
    assert [byte_level.show(token) for token in byte_level.encode("€")] == ["\\xe2", "\\x82", "\\xac"]
    assert "".join(map(byte_fallback.show, byte_fallback.encode("a b"))) == "<s> a b"


def test_chat_is_rendered_and_encoded() -> None:
    tokenizer = with_bos(chat_template=CHATML, bos_token="<bos>", eos_token="<eos>")
    text = tokenizer.chat([{"role": "user", "content": "hi"}])
    assert text == "<bos>user:hi<eos><eos>"
    ids = tokenizer.encode(text)
    assert (ids[0], ids[-2:], ids.count(1)) == (1, [2, 2], 1)


def test_chat_without_a_template_is_an_error(byte_level: Tokenizer) -> None:
    with pytest.raises(ValueError, match="no chat template"):
        byte_level.chat([{"role": "user", "content": "hi"}])


def test_vocab_size_counts_added_tokens(byte_level: Tokenizer) -> None:
    assert byte_level.vocab_size == 322
    assert byte_level.token_to_id("é日 x") == 321
    assert byte_level.token_to_id("no such token") is None


def test_save_and_load_give_the_same_tokenizer(tokenizer: Tokenizer, tmp_path: Path) -> None:
    original = Tokenizer(tokenizer.backend, 0, frozenset({2, 1}), True, CHATML, "<béos>", "<eos>")
    original.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tokenizer.json", "tokenizer_settings.json"]
    assert repr(again) == repr(original)
    assert again.chat_template == CHATML
    for text in ("", "the cat", "日本語 é 👍", " a  b "):
        assert again.encode(text) == original.encode(text)
        assert again.decode(original.encode(text)) == original.decode(original.encode(text))


def test_save_creates_missing_folders(byte_level: Tokenizer, tmp_path: Path) -> None:
    byte_level.save(tmp_path / "new" / "folder")
    assert Tokenizer.load(tmp_path / "new" / "folder").encode("the cat") == byte_level.encode("the cat")


def test_save_errors_name_the_folder(byte_level: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for wrong in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OSError, match="file"):
            byte_level.save(wrong)


def test_literal_tokenizer_encodes_special_tokens_as_text() -> None:
    plain = train_bpe(["a"], 260)
    read = Tokenizer(plain.backend, plain.bos_id, plain.eos_ids)
    assert read.encode("a<eos>") == [*plain.encode("a"), 2]
    assert 2 not in plain.encode("a<eos>")  # though both have one tokenizer
    assert plain.decode(plain.encode("a<eos>")) == "a<eos>"


def test_files_without_literal_read_special_tokens(tmp_path: Path) -> None:
    tokenizer = train_bpe(["a"], 260)
    tokenizer.save(tmp_path)
    facts = json.loads((tmp_path / "tokenizer_settings.json").read_text())
    assert facts.pop("literal") is True
    (tmp_path / "tokenizer_settings.json").write_text(json.dumps(facts))
    assert Tokenizer.load(tmp_path).encode("<eos>") == [2]


def test_load_errors_name_the_file(byte_level: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"tokenizer_settings\.json"):
        Tokenizer.load(tmp_path)
    byte_level.save(tmp_path)
    facts = json.loads((tmp_path / "tokenizer_settings.json").read_text())

    (tmp_path / "tokenizer_settings.json").write_text(json.dumps(facts | {"more": 1}))
    with pytest.raises(ValueError, match=r"tokenizer_settings\.json must have the keys bos_id, eos_ids"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer_settings.json").write_text(json.dumps(facts | {"eos_ids": None}))
    with pytest.raises(ValueError, match=r"tokenizer_settings\.json has a wrong value"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer_settings.json").write_text(json.dumps(facts))
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match=r"tokenizer\.json is not a usable tokenizer"):
        Tokenizer.load(tmp_path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text=st.text().filter(lambda text: not any(token in text for token in SPECIALS)))
def test_byte_level_text_round_trips(byte_level: Tokenizer, text: str) -> None:
    assert byte_level.decode(byte_level.encode(text)) == text


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_decode_differs_from_tokenizers_only_for_invalid_bytes(
    tokenizer: Tokenizer, data: st.DataObject
) -> None:
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=20))
    expected = tokenizer.backend.decode(ids)
    assert tokenizer.decode(ids) == expected or "\ufffd" in expected


def test_detokenizer_after_a_token_keeps_the_leading_space(byte_fallback: Tokenizer) -> None:
    word = byte_fallback.encode("a b")
    for cut in range(1, len(word)):
        detokenizer = byte_fallback.detokenizer(after=word[cut - 1])
        for token in word[cut:]:
            detokenizer = detokenizer.push(token)  # type: ignore[assignment]
        assert byte_fallback.decode(word[:cut]) + detokenizer.close() == byte_fallback.decode(word)
    silent = next(iter(byte_fallback.token_bytes.silent))
    assert byte_fallback.detokenizer(after=silent).last is None
