import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from unspool.decode.generate import generate
from unspool.decode.hypothesis import Hypothesis
from unspool.decode.loops import (
    ApproximateLoop,
    Loop,
    StopOnLoop,
    find_approximate_loop,
    find_loop,
    loop_words,
    repeat_coverage,
    stop_on_loops,
)
from unspool.decode.search import Beam, Greedy
from unspool.testing import TableModel, random_table, trigram

CYCLE = {0: 1, 1: 2, 2: 3, 3: 1}


def cycling(a, b):
    """0 1 2 3 1 2 3 …: a lead of one token, then a loop of three."""
    p = [0.02] * 4
    p[CYCLE[b]] = 0.94
    return p


def brute_force(tokens, repeats, span):
    """Straight from the definition."""
    for period in range(1, len(tokens) + 1):
        needed = max(repeats * period, span)
        tail = tokens[len(tokens) - needed :] if needed <= len(tokens) else None
        if tail and needed > period and all(tail[i] == tail[i - period] for i in range(period, needed)):
            start = min(
                s
                for s in range(len(tokens))
                if all(tokens[t] == tokens[t - period] for t in range(s + period, len(tokens)))
            )
            return Loop(start, period, (len(tokens) - start) / period)
    return None


def test_by_hand():
    assert find_loop([9, 8, 1, 2, 1, 2, 1, 2]) == Loop(2, 2, 3.0)
    assert find_loop([9, 2, 1, 2, 1, 2, 1, 2]) == Loop(1, 2, 3.5)
    assert find_loop([9, 8, 1, 2, 1, 2]) is None
    assert find_loop([5, 5, 5]) is None
    assert find_loop([1, 5, 5, 5, 5, 5, 5]) == Loop(1, 1, 6.0)
    assert find_loop("la la la la ") == Loop(0, 3, 4.0)
    assert find_loop([]) is None


@given(
    lead=st.lists(st.integers(0, 2), max_size=6),
    body=st.lists(st.integers(0, 2), min_size=1, max_size=4),
    times=st.integers(1, 6),
    repeats=st.integers(2, 4),
    span=st.integers(1, 9),
)
def test_equals_the_definition(lead, body, times, repeats, span):
    tokens = lead + body * times
    assert find_loop(tokens, repeats, span) == brute_force(tokens, repeats, span)


def test_generation_stops_in_a_loop_and_tells_where():
    out = generate(trigram(cycling), [0], Greedy(), max_new_tokens=200, on_loop="stop")
    assert out.finish_reason == "loop"
    assert out.loop == Loop(0, 3, 16 / 3)
    assert len(out.tokens) == 16


def test_ignored_loops_go_on():
    out = generate(trigram(cycling), [0], Greedy(), max_new_tokens=50)
    assert (out.finish_reason, out.loop, len(out.tokens)) == ("length", None, 50)


def test_a_function_decides():
    seen = []

    def at_ten_times(path, loop):
        seen.append(loop.repeats)
        return loop.repeats >= 10

    out = generate(trigram(cycling), [0], Greedy(), max_new_tokens=200, on_loop=at_ten_times)
    assert (out.finish_reason, len(out.tokens)) == ("loop", 30)
    assert seen == [length / 3 for length in range(16, 31)]


def test_beams_stop_in_loops_as_well():
    out = generate(trigram(cycling), [0], Beam(2), max_new_tokens=40, on_loop="stop")
    assert out.finish_reason == "loop"
    assert out.loop.period == 3


@pytest.mark.parametrize("seed", range(6))
def test_every_greedy_trigram_model_is_found_out(seed):
    V, table = 5, random_table(5, seed=seed).table
    model = trigram(lambda a, b: table((a, b)))
    tokens = generate(model, [0, 1], Greedy(), max_new_tokens=6 * V * V).tokens
    loop = find_loop(tokens)
    assert loop.period <= V * V
    assert all(tokens[t] == tokens[t - loop.period] for t in range(loop.start + loop.period, len(tokens)))
    if loop.start:
        assert tokens[loop.start - 1] != tokens[loop.start - 1 + loop.period]


def test_the_judge_leaves_other_paths_alone():
    path = Hypothesis(0, 0, (1,), tokens=tuple(range(40)))
    assert StopOnLoop(lambda path, loop: True)(path) is path


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="repeats is 1, but must be a whole number ≥ 2"):
        find_loop([1, 1], repeats=1)
    with pytest.raises(TypeError, match=r"span is 6\.0, but must be a whole number"):
        find_loop([1, 1], span=6.0)
    with pytest.raises(TypeError, match="tokens is None, but must be a list"):
        find_loop(None)
    with pytest.raises(ValueError, match=r"on_loop=<class 'int'> is unknown"):
        stop_on_loops(int)
    with pytest.raises(ValueError, match=r"on_loop='halt'.*'ignore', 'stop', 'stop_approximate'"):
        stop_on_loops("halt")


def test_arrays_of_tokens_are_tokens():
    assert find_loop(torch.tensor([7, 1, 2] * 3)) == find_loop(np.array([7, 1, 2] * 3)) == Loop(0, 3, 3.0)


def coverage_by_definition(words, reach, repeats):
    pairs = [
        (at, gap, (words[at], gap, words[at + gap]))
        for gap in range(1, reach + 1)
        for at in range(len(words) - gap)
    ]
    kinds = [kind for _, _, kind in pairs]
    covered = {it for at, gap, kind in pairs if kinds.count(kind) >= repeats for it in (at, at + gap)}
    return len(covered) / max(1, len(words))


@given(words=st.lists(st.integers(0, 3), max_size=40), reach=st.integers(1, 4), repeats=st.integers(2, 4))
def test_coverage_equals_its_definition(words, reach, repeats):
    expected = coverage_by_definition(words, reach, repeats)
    assert repeat_coverage(words, reach, repeats) == pytest.approx(expected)


def test_words_are_folded_numbers_masked_and_signs_left_out():
    assert loop_words("Step 12: TURN Left, 3.5 km…") == ["step", "0", "turn", "left", "0", "km"]
    assert loop_words(["The", "cat,", "7"]) == ["the", "cat", "0"]
    assert loop_words([5, 5, 7]) == [5, 5, 7]
    assert loop_words("東京 2020") == ["東", "京", "0"]


STORY = (
    "A lighthouse keeper who had lived alone for thirty years found one morning that somebody had painted his door "
    "red. He asked the fishermen, the baker and even the priest, but nobody knew anything about it, or so they said. "
    "In the evening he sat down on the stairs, looked out at the grey water and thought of his sister's house in "
    "town, whose windows had been of that very colour when both of them were children."
)
NUMBERED = " ".join(f"{n}. Wash the dishes and put them back on the shelf." for n in range(1, 14))
CASES = " ".join(
    ("The answer is Yes.", "the ANSWER is yes!", "The answer Is yes,")[int(it)]
    for it in "021001220110220212001210"
)
NUMBERS = " ".join(
    f"On day {n} the ship sailed {7 * n} miles to the west and saw no land." for n in range(1, 10)
)


@pytest.mark.parametrize("text", [NUMBERED, CASES, NUMBERS], ids=["numbered", "case", "numbers"])
def test_a_loop_that_never_repeats_exactly_is_an_approximate_loop(text):
    assert find_loop(text.split()) is None
    found = find_approximate_loop(f"{STORY} {text}")
    assert found.coverage > 0.75
    assert found.window == 96


def nearly(sentence, share, seed, words=96):
    """A sentence again and again, in which some words are replaced by new ones each time."""
    rng, said = np.random.default_rng(seed), []
    while len(said) < words:
        for word in sentence.split():
            new = "".join(chr(97 + digit) for digit in rng.integers(0, 26, 8))
            said.append(new if rng.random() < share else word)
    return " ".join(said)


def test_most_texts_of_which_three_quarters_repeat_are_approximate_loops():
    sentence = "the old man went down to the harbour to look at his boat"
    texts = [nearly(sentence, 0.25, seed) for seed in range(50)]
    assert not any(find_loop(text.split()) for text in texts)
    assert sum(find_approximate_loop(text) is not None for text in texts) >= 45
    assert not any(find_approximate_loop(nearly(sentence, 0.75, seed)) for seed in range(20))


def test_ordinary_and_short_texts_are_no_approximate_loops():
    assert find_approximate_loop(STORY) is None
    assert find_approximate_loop("no no no no") is None
    assert find_approximate_loop([]) is None
    assert find_approximate_loop([1, 2, 3] * 30) == ApproximateLoop(1.0, 90)
    assert find_approximate_loop(torch.tensor([1, 2, 3] * 30)) == ApproximateLoop(1.0, 90)
    with pytest.raises(TypeError, match="text is None, but must be a string"):
        find_approximate_loop(None)
    with pytest.raises(ValueError, match="threshold"):
        find_approximate_loop("a", threshold=2.0)


def drifting(row):
    """0 1 2 3 0 1 2 3 …, in which every tenth token is another one each time: no loop is exact for long."""
    at = len(row)
    token = 4 + at // 10 if at % 10 == 3 else at % 4
    return [0.999 if it == token else 0.001 / 63 for it in range(64)]


@pytest.mark.parametrize("decoder", [Greedy(), Beam(2)])
def test_generation_stops_in_an_approximate_loop_if_asked(decoder):
    model = TableModel(drifting)
    through = generate(model, [0], decoder, max_new_tokens=150, on_loop="stop")
    assert (through.finish_reason, through.loop) == ("length", None)
    stopped = generate(model, [0], decoder, max_new_tokens=150, on_loop="stop_approximate")
    assert (stopped.finish_reason, stopped.loop) == ("loop", None)
    assert stopped.approximate_loop.coverage >= 0.62
    assert len(stopped.tokens) == 48  # the first look at 40 tokens or more
    assert stopped.tokens == through.tokens[: len(stopped.tokens)]


def test_exact_loops_still_end_a_text_first():
    out = generate(trigram(cycling), [0], Greedy(), max_new_tokens=200, on_loop="stop_approximate")
    assert (out.finish_reason, out.loop, out.approximate_loop) == ("loop", Loop(0, 3, 16 / 3), None)
