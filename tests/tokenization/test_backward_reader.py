from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from unspool.tokenization import Tokenizer, train_bpe, train_words
from unspool.tokenization.detokenizer import BackwardDetokenizer

WORDS = replace(train_words(["one two three four"]), right_to_left=True)
BYTES = replace(train_bpe(["abab abab €"] * 3, 270), right_to_left=True)


def read(text: Tokenizer, ids: list[int], *stop: str) -> BackwardDetokenizer:
    reader = text.detokenizer(stop)
    assert isinstance(reader, BackwardDetokenizer)
    for token in ids:
        reader = reader.push(token)
    return reader


def test_the_last_word_comes_first_by_hand() -> None:
    ids = WORDS.encode("one two three")
    assert ids == WORDS.source_tokenizer.encode("one two three")[::-1]
    assert WORDS.decode(ids) == "one two three"
    reader = read(WORDS, ids[:2])
    assert (reader.text, reader.close(), reader.finish_reason) == ("", "two three", None)


def test_a_stop_string_ends_it_and_what_stands_behind_is_kept() -> None:
    reader = read(WORDS, WORDS.encode("four one two three"), "one")
    assert reader.finish_reason == "stop"
    assert reader.close() == " two three"


@given(st.text("ab €", max_size=20))
def test_text_comes_back_the_right_way_round(line: str) -> None:
    assert BYTES.decode(BYTES.encode(line)) == line
    assert read(BYTES, BYTES.encode(line)).close() == line
    assert sorted(BYTES.encode(line)) == sorted(BYTES.source_tokenizer.encode(line))


def test_it_is_saved_and_its_sources_are_read_from_left_to_right(tmp_path: object) -> None:
    WORDS.save(str(tmp_path))
    again = Tokenizer.load(str(tmp_path))
    assert again.right_to_left
    assert again.encode("one two") == WORDS.encode("one two")
    assert not again.source_tokenizer.right_to_left
    assert again.source_tokenizer.source_tokenizer is again.source_tokenizer


def test_an_older_vocabulary_reads_from_left_to_right(tmp_path: object) -> None:
    import json
    from pathlib import Path

    folder = Path(str(tmp_path))
    WORDS.save(folder)
    facts = json.loads((folder / "text.json").read_text())
    del facts["right_to_left"]
    (folder / "text.json").write_text(json.dumps(facts))
    assert not Tokenizer.load(folder).right_to_left


@pytest.mark.parametrize("stop", [(), ("x",)])
def test_special_tokens_show_nothing(stop: tuple[str, ...]) -> None:
    assert read(WORDS, [2], *stop).close() == ""
