from __future__ import annotations

import time
from random import Random

import pytest
from hypothesis import given, strategies as st

from unspool.tokenization import train_bpe, train_characters
from unspool.tokenization.vocabulary import BPEDropout

TEXT = train_bpe(["abab abab abc", "ab abc"] * 4, 270)


class Dice(Random):
    """Says what it was told to."""

    def __init__(self, *rolls: float) -> None:
        super().__init__()
        self._rolls = list(rolls)

    def random(self) -> float:
        return self._rolls.pop(0)


def test_by_hand() -> None:
    drop = BPEDropout(TEXT, 0.5)
    # abab: the joins a+b (twice); the first is left out, the second is made; then a+b again, not left out; …
    assert drop.parts("ab", Dice(0.9)) == ["ab"]
    assert drop.parts("ab", Dice(0.1)) == ["a", "b"]
    assert drop.parts("abab", Dice(0.1, 0.9, 0.1)) == ["a", "b", "ab"]


@given(st.text("abc xé€", max_size=30))
def test_without_dropout_it_is_bpe_and_with_any_the_text_stays(line: str) -> None:
    ids = TEXT.encode(line)
    assert BPEDropout(TEXT, 0.0)(ids, Random(0)) == ids
    for rate in (0.3, 0.999999):
        cut = BPEDropout(TEXT, rate)(ids, Random(1))
        assert TEXT.decode(cut) == line
        assert len(cut) >= len(ids)


def test_the_same_dice_cut_the_same() -> None:
    ids, drop = TEXT.encode("abab abc abab abc"), BPEDropout(TEXT, 0.5)
    assert drop(ids, Random(3)) == drop(ids, Random(3))
    assert len({tuple(drop(ids, Random(seed))) for seed in range(9)}) > 1


def test_half_a_character_stays_as_it_is() -> None:
    half = TEXT.encode("€")[:1]
    assert BPEDropout(TEXT, 0.5)(half, Random(0)) == half


def test_other_vocabularies_are_refused() -> None:
    with pytest.raises(ValueError, match="for a vocabulary of BPE, and this one is WordLevel"):
        BPEDropout(train_characters(["ab"]), 0.1)


def test_one_very_long_word_does_not_stall_it() -> None:
    text = train_bpe(["ab" * 30] * 5, 300)
    ids = text.encode("ab" * 20_000)
    start = time.perf_counter()
    found = BPEDropout(text, 0.1)(ids, Random(0))
    assert time.perf_counter() - start < 10  # hours, where each round looks at the whole word
    assert text.decode(found) == "ab" * 20_000
