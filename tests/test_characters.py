import pytest

from unspool.errors import check_surrogates


@pytest.mark.parametrize("text", ["", "plain", "ß 漢 🧵"])
def test_whole_characters_pass(text):
    assert check_surrogates(text, "the text") == text


def test_half_a_character_is_named_with_its_place():
    with pytest.raises(
        ValueError, match=r"--stop has a lone surrogate \(U\+D83D\) at position 2, which is half"
    ):
        check_surrogates("ab\ud83d", "--stop")
