from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from unspool.tokenization.vocabulary import IGNORE_MERGES, PRE_TOKENIZERS

TEXT = "I'LL pay  $1234.5\n\n for x²"


def cut(name: str, text: str) -> list[str]:
    return [text[start:end] for _, (start, end) in PRE_TOKENIZERS[name].pre_tokenize_str(text)]


@pytest.mark.parametrize(
    ("name", "pieces"),
    [
        # Words with the space before them, digits together, apostrophes only in small letters.
        ("gpt-2", ["I", "'", "LL", " pay", " ", " $", "1234", ".", "5", "\n\n", " for", " x", "²"]),
        # Every digit alone.
        (
            "smollm",
            ["I", "'", "LL", " pay", " ", " $", "1", "2", "3", "4", ".", "5", "\n\n", " for", " x", "²"],
        ),
        # Digits in threes, apostrophes in any letters, line ends with the mark before them.
        ("llama-bpe", ["I", "'LL", " pay", " ", " $", "123", "4", ".", "5", "\n\n", " for", " x", "²"]),
        ("qwen2", ["I", "'LL", " pay", " ", " $", "1", "2", "3", "4", ".", "5", "\n\n", " for", " x", "²"]),
        # Capitals and small letters may part.
        ("tekken", ["I", "'LL", " pay", " ", " $", "1", "2", "3", "4", ".", "5", "\n\n", " for", " x", "²"]),
        # Marks leave the word before them, digits come in threes.
        ("default", ["I", "'", "LL", " pay", "  ", "$", "123", "4", ".", "5", "\n\n", " for", " x", "²"]),
    ],
)
def test_text_is_cut_as_the_model_learnt_it(name: str, pieces: list[str]) -> None:
    assert cut(name, TEXT) == pieces


def test_spaces_before_a_digit_stay_together_where_digits_are_cut_first() -> None:
    assert cut("smollm", "x   42") == ["x", "   ", "4", "2"]
    assert cut("gpt-2", "x   42") == ["x", "  ", " 42"]


def test_capitals_part_a_word_for_tekken() -> None:
    assert cut("tekken", "camelCase ABCd") == ["camel", "Case", " ABCd"]
    assert cut("llama3", "camelCase ABCd") == ["camelCase", " ABCd"]


def test_those_that_take_whole_words_are_known() -> None:
    assert set(PRE_TOKENIZERS) >= IGNORE_MERGES


@given(name=st.sampled_from(sorted(PRE_TOKENIZERS)), text=st.text())
def test_no_cut_loses_anything(name: str, text: str) -> None:
    assert "".join(cut(name, text)) == text
