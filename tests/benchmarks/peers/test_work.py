import pytest

from peers.work import Mode, Work, parse_mode


def test_a_mode_is_a_decoder_and_rows():
    assert parse_mode("greedy") == Mode("greedy")
    assert parse_mode("top-p 0.9") == Mode("top-p 0.9", top_p=0.9)
    assert parse_mode("beam 5 x32") == Mode("beam 5 x32", beams=5, rows=32)
    assert [parse_mode(text).greedy for text in ("greedy x8", "top-p 0.5", "beam 4")] == [True, False, False]


@pytest.mark.parametrize(
    "text", ["", "greed", "greedy x", "greedy x0", "beam", "beam 0", "top-p", "greedyx8", "x8"]
)
def test_an_unknown_mode_is_refused_with_the_choices(text):
    with pytest.raises(ValueError, match=r'unknown: expected "greedy", "top-p 0\.9" or "beam 4"'):
        parse_mode(text)


def test_prompts_are_taken_from_the_first_again():
    prompts = [[1], [2], [3]]
    assert parse_mode("greedy").work(prompts, 7) == Work([[1]], 7)
    assert parse_mode("beam 4 x5").work(prompts, 7) == Work([[1], [2], [3], [1], [2]], 7, beams=4)
