from random import Random

import pytest

from unspool.decode.rng import stream_key
from unspool.integrations.vllm.sequences import PLACEHOLDER_TOKEN, DrawnToken, RunningSequence


def drawing(text, token):
    """Draw one number, and note a token."""
    state = text.rng.getstate()
    drawn = text.rng.random()
    text.drawn = DrawnToken(token, -1.0, -0.5, state)
    return drawn


@pytest.fixture
def text():
    return RunningSequence(None, 7, (4, 5), frozenset({2}))


def test_a_text_grows_by_the_tokens_that_stay(text):
    rng = Random(stream_key(7, (4, 5), 0))
    assert text.follow(0, PLACEHOLDER_TOKEN)
    drawn = [drawing(text, 10)]
    assert text.follow(1, 10)
    drawn.append(drawing(text, 11))
    assert text.follow(2, PLACEHOLDER_TOKEN)
    assert drawn == [rng.random(), rng.random()]
    assert (text.path.prompt, text.path.tokens) == ((4, 5), (10, 11))
    assert (text.path.logps, text.path.scores) == ((-1.0, -1.0), (-0.5, -0.5))


def test_a_token_that_is_thrown_away_draws_the_same_number_again(text):
    thrown = [drawing(text, 10) for _ in range(3) if text.follow(0, PLACEHOLDER_TOKEN)]
    assert thrown == [Random(stream_key(7, (4, 5), 0)).random()] * 3
    assert text.written == ()


def test_another_token_than_the_drawn_one_is_noticed(text):
    drawing(text, 10)
    assert not text.follow(1, 12)
    assert not text.follow(3, PLACEHOLDER_TOKEN)


def test_tokens_that_were_there_before_are_read_as_a_prompt_and_their_draws_are_skipped():
    text = RunningSequence(None, 7, (4,), frozenset(), tokens=(8, 9))
    assert text.path.prompt == (4, 8, 9)
    rng = Random(stream_key(7, (4,), 0))
    assert [rng.random() for _ in range(3)][2] == text.rng.random()
    assert text.follow(2, 9)
    assert text.written == (8, 9)


def test_a_text_that_was_set_aside_is_known_again(text):
    drawing(text, 10)
    assert text.goes_on_with([4, 5], [])
    assert text.goes_on_with([4, 5], [10])
    assert not text.goes_on_with([4, 5], [11])
    assert not text.goes_on_with([4], [10])
