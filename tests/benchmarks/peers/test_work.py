import pytest

from peers.work import Mode, parse_mode


@pytest.mark.parametrize("text", ["greedy", "greedy x8", "top-p 0.9", "beam 4", "beam 4 x2"])
def test_a_mode_is_written_as_it_is_read(text):
    assert str(parse_mode(text)) == text


def test_rows_stand_behind_the_decoder():
    assert parse_mode("greedy x8") == Mode("greedy", 8)


@pytest.mark.parametrize("text", ["", "greed", "greedy x", "greedy x0", "greedy x-1", "greedyx8", "x8"])
def test_what_is_no_mode_is_refused_with_the_choices(text):
    with pytest.raises(ValueError, match=r"unknown: expected greedy, top-p 0\.9, beam 4"):
        parse_mode(text)
