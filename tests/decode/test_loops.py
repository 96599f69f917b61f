import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from unspool.decode.generate import generate
from unspool.decode.loops import Loop, LoopJudge, find_loop, loop_judge
from unspool.decode.path import Path
from unspool.decode.search import Beam, Greedy
from unspool.testing import random_table, trigram

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
    assert out.finish == "loop"
    assert out.loop == Loop(0, 3, 16 / 3)
    assert len(out.tokens) == 16


def test_ignored_loops_go_on():
    out = generate(trigram(cycling), [0], Greedy(), max_new_tokens=50)
    assert (out.finish, out.loop, len(out.tokens)) == ("length", None, 50)


def test_a_function_decides():
    seen = []

    def at_ten_times(path, loop):
        seen.append(loop.repeats)
        return loop.repeats >= 10

    out = generate(trigram(cycling), [0], Greedy(), max_new_tokens=200, on_loop=at_ten_times)
    assert (out.finish, len(out.tokens)) == ("loop", 30)
    assert seen == [length / 3 for length in range(16, 31)]


def test_beams_stop_in_loops_as_well():
    out = generate(trigram(cycling), [0], Beam(2), max_new_tokens=40, on_loop="stop")
    assert out.finish == "loop"
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
    path = Path(0, 0, (1,), tokens=tuple(range(40)))
    assert LoopJudge(lambda path, loop: True)(path) is path


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="repeats is 1, but must be a whole number ≥ 2"):
        find_loop([1, 1], repeats=1)
    with pytest.raises(TypeError, match=r"span is 6\.0, but must be a whole number"):
        find_loop([1, 1], span=6.0)
    with pytest.raises(TypeError, match="tokens is None, but must be a list"):
        find_loop(None)
    with pytest.raises(ValueError, match=r"on_loop=<class 'int'> is unknown"):
        loop_judge(int)
    with pytest.raises(ValueError, match=r"on_loop='halt'.*'ignore', 'stop'"):
        loop_judge("halt")


def test_arrays_of_tokens_are_tokens():
    assert find_loop(torch.tensor([7, 1, 2] * 3)) == find_loop(np.array([7, 1, 2] * 3)) == Loop(0, 3, 3.0)
