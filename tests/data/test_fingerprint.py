from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from unspool.data import encoded_store
from unspool.data.line_formats import Lines
from unspool.data.rows import Data
from unspool.tokenization import BPE, Words, train_words

Write = Callable[..., str]


def hash_data(data: Data, seed: int) -> str:
    return encoded_store.hash_data(data, seed, encoded_store.hash_files(data))


def test_files_count_by_what_they_hold(write: Write) -> None:
    one, same, other = write("a", "x\n"), write("b", "x\n"), write("c", "y\n")
    name = hash_data(Lines(train=one), 0)
    assert name == hash_data(Lines(train=same), 0)
    assert name != hash_data(Lines(train=other), 0)
    assert name != hash_data(Lines(train=one, document="file"), 0)
    assert name != hash_data(Lines(train=one, valid=same), 0)


def test_the_seed_counts_where_it_chooses_what_is_held_out(write: Write) -> None:
    path = write("a", "x\ny\n")
    assert hash_data(Lines(train=path), 0) == hash_data(Lines(train=path), 1)
    held = Lines(train=path, valid_lines=1)
    assert hash_data(held, 0) != hash_data(held, 1)


def test_a_text_counts_by_the_ids_it_gives() -> None:
    assert encoded_store.hash_tokenizer(train_words(["a b"])) == encoded_store.hash_tokenizer(
        train_words(["b a"])
    )
    assert encoded_store.hash_tokenizer(train_words(["a b"])) != encoded_store.hash_tokenizer(
        train_words(["a c"])
    )
    codec = train_words(["a b"])
    assert encoded_store.hash_tokenizer(codec) != encoded_store.hash_tokenizer(replace(codec, literal=False))


def test_every_setting_of_a_tokenizer_that_changes_ids_changes_its_hash() -> None:
    plain = train_words(["a b"])
    changes: list[dict[str, Any]] = [
        {},
        {"add_bos": True},
        {"bos_id": 0},
        {"eos_ids": frozenset({0})},
        {"bos_token": "<unk>"},  # chat templates may write it
        {"eos_token": "<unk>"},  # it chooses the end of training texts among eos_ids
        {"chat_template": "{{ messages }}"},
        {"literal": not plain.literal},
        {"right_to_left": True},
    ]
    names = {encoded_store.hash_tokenizer(replace(plain, **change)) for change in changes}
    assert len(names) == len(changes)


def test_settings_count_with_their_kind() -> None:
    names = {encoded_store.hash_settings(*it) for it in ((BPE, {}), (Words, {}), (Words, {"min_count": 2}))}
    assert len(names) == 3
    assert encoded_store.combine_hashes("a", "b") != encoded_store.combine_hashes("b", "a")


def test_files_are_named_by_their_settings(write: Write) -> None:
    data = Lines(train=write("a", "x\n"), valid=write("b", "x\n"))
    found = encoded_store.hash_files(data)
    assert found["train"] == found["valid"] != []
    with pytest.raises(FileNotFoundError, match=r"valid = 'no\.txt': there is no such file"):
        encoded_store.hash_files(Lines(train=data.train, valid="no.txt"))


def test_a_packed_file_holds_what_it_is_unpacked_to(write: Write) -> None:
    plain, packed = write("a", "x\n"), write("b", gzip.compress(b"x\n"))
    assert hash_data(Lines(train=plain), 0) == hash_data(Lines(train=packed), 0)


def test_several_files_count_in_their_order(write: Write) -> None:
    one, other = write("a", "x\n"), write("b", "y\n")
    names = {hash_data(Lines(train=it), 0) for it in (one, (one, other), (other, one), (one, one))}
    assert len(names) == 4
    assert hash_data(Lines(train=(one,)), 0) == hash_data(Lines(train=one), 0)


def test_the_vocabulary_of_sources_counts() -> None:
    codec = train_words(["a b"])
    names = {
        encoded_store.hash_tokenizer(replace(codec, source=it)) for it in (None, codec, train_words(["c d"]))
    }
    assert len(names) == 3
