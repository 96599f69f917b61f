import struct

import pytest
from hypothesis import given, strategies as st

from unspool.models.loading.gguf_file import GGUFCursor


def cursor(data):
    return GGUFCursor("x.gguf", data)


def test_values_one_after_the_other(raw_gguf):
    found = cursor(raw_gguf(7, "ab", 9, 4, (2,), 1, 2, 9, 8, (2,), "c", ""))
    assert found.scalar("I", "a number") == 7
    assert found.string("a word") == "ab"
    assert found.value("numbers") == [1, 2]
    assert found.value("words") == ["c", ""]
    assert found.at == found.end


def test_what_is_not_there_is_named_with_its_place(raw_gguf):
    found = cursor(raw_gguf(7, (5,), b"abc"))
    found.scalar("I", "a number")
    with pytest.raises(ValueError, match=r"x\.gguf: at byte 12 of 15: expected a word \(5 bytes or more\)"):
        found.string("a word")


@given(st.lists(st.text()))
def test_many_strings_at_once_are_the_same_as_one_by_one(texts):
    data = b"".join(struct.pack("<Q", len(it.encode())) + it.encode() for it in texts)
    assert cursor(data).strings(len(texts), "words") == texts
    slow = cursor(data)
    assert [slow.string("a word") for _ in texts] == texts
