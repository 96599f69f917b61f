import json
import unicodedata

import pytest

from unspool.errors import escape_json, escape_name, message_line, replace_control_characters


def test_nothing_steers_a_terminal():
    assert replace_control_characters("a\x1b[31mb\x07\x00\x9b\n\tc\r") == "a�[31mb���\n\tc�"


@pytest.mark.parametrize("mark", "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c")
def test_no_mark_turns_the_direction_of_writing(mark):
    assert replace_control_characters(f"abc{mark}def") == "abc�def"


def test_every_character_of_control_is_replaced_and_no_letter():
    changed = {chr(code) for code in range(0x3000) if replace_control_characters(chr(code)) != chr(code)}
    assert {
        character for character in changed if unicodedata.category(character) not in ("Cc", "Cf")
    } == set()
    assert (
        replace_control_characters("שלום مرحبا 日本 e\u0301 👩\u200d👧")
        == "שלום مرحبا 日本 e\u0301 👩\u200d👧"
    )


def test_a_name_in_a_message_is_one_line_that_steers_nothing_and_ends():
    assert escape_name("a\nb\x1b[2Jc\u202e\u2028é") == "a\\nb\\x1b[2Jc\\u202e\\u2028é"
    assert escape_name("x" * 9, most=5) == "xxxx…"


def test_a_message_is_one_line_of_bounded_length():
    assert message_line("  a\x1b[2J\r\n  b\u2028c\u202ed\te ") == "a�[2J b c�d\te"
    assert message_line("x" * 9, most=5) == "xxxx…"


def test_json_escapes_what_steers_a_terminal_and_means_the_same():
    text = "a\u202eb\u2066c\x9bd\x7fe\x1b\u202a\u2069\n é שלום"
    said = escape_json(json.dumps({"text": text}, ensure_ascii=False))
    assert json.loads(said) == {"text": text}
    assert replace_control_characters(said) == said
    assert "é שלום" in said
