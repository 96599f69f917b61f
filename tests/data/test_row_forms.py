from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from unspool.data.batch import ragged_from_lists
from unspool.data.examples import Pairs, Texts, bos_and_eos, encode_with_bos_eos, encode_without_bos
from unspool.tokenization import Tokenizer, train_words

CODEC = train_words(["a b c"])  # a = 4, b = 5, c = 6


def test_a_text_is_what_encode_gives_and_eos() -> None:
    rows = [("a b",), ("c x",)]
    assert Texts().encode(rows, replace(CODEC, add_bos=True)) == [[[1, 4, 5, 2]], [[1, 6, 3, 2]]]
    assert Texts().encode(rows, CODEC) == [[[4, 5, 2]], [[6, 3, 2]]]
    assert Texts().encode([(" ",)], CODEC) == [[[2, 2]]]
    assert Texts(joined=True).encode([("a b",)], CODEC) == [[[4, 5]]]
    assert Texts().texts(("a b",)) == ("a b",)


def test_both_sides_of_a_pair_are_framed_by_hand() -> None:
    rows = [("a", "b c"), ("c", "a")]
    assert list(map(list, Pairs().encode(rows, CODEC))) == [[[1, 4, 2], [1, 5, 6, 2]], [[1, 6, 2], [1, 4, 2]]]
    assert Pairs().texts(("a", "b")) == ("a", "b")


def test_examples_know_source_from_target() -> None:
    batch = (
        Pairs()
        .examples([ragged_from_lists([[1, 4, 2]]), ragged_from_lists([[1, 5, 6, 2]])])
        .batch(np.array([0]))
    )
    assert batch.source_NS is not None
    assert (batch.source_NS.tolist(), batch.targets_NU.tolist()) == ([[4, 2]], [[5, 6, 2]])
    assert Texts().examples([ragged_from_lists([[1, 4, 2]])]).batch(np.array([0])).source_NS is None


def test_a_bos_that_the_codec_writes_itself_is_not_there_twice() -> None:
    codec = replace(train_words(["a b"]), add_bos=True)
    assert (encode_without_bos(["a"], codec), encode_with_bos_eos(["a"], codec)) == ([[4]], [[1, 4, 2]])


def test_eos_stands_in_for_a_bos_that_is_not_there() -> None:
    assert bos_and_eos(Tokenizer(CODEC.backend, eos_ids=frozenset({2}))) == (2, 2)
    assert bos_and_eos(
        Tokenizer(CODEC.backend, bos_id=1, eos_ids=frozenset({0, 2}), eos_token=CODEC.eos_token)
    ) == (
        1,
        2,
    )
    assert bos_and_eos(Tokenizer(CODEC.backend, bos_id=1, eos_ids=frozenset({2, 3}))) == (1, 2)
    with pytest.raises(ValueError, match="could not learn to stop"):
        bos_and_eos(Tokenizer(CODEC.backend, bos_id=1))
