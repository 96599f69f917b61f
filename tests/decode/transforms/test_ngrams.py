import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from transformers.generation.logits_process import NoRepeatNGramLogitsProcessor

from unspool.decode.hypothesis import Hypothesis
from unspool.decode.transforms import DRY, NoRepeatNgram
from unspool.interfaces import Step

SCORES = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()


def banned(rule, path):
    return (rule(SCORES, Step(SCORES), [path]) == -math.inf)[0].nonzero()[:, 0].tolist()


def test_no_repeat_ngram_by_hand():
    path = Hypothesis(0, 0, (0, 1), (2, 0, 1, 3, 0, 1))
    assert banned(NoRepeatNgram(3), path) == [2, 3]
    assert banned(NoRepeatNgram(3, prompt=False), path) == [3]
    assert banned(NoRepeatNgram(4), path) == []
    assert banned(NoRepeatNgram(2), path) == [2, 3]


def test_one_lets_every_token_occur_once():
    assert banned(NoRepeatNgram(1), Hypothesis(0, 0, (), (3, 1))) == [1, 3]
    assert banned(NoRepeatNgram(1), Hypothesis(0, 0, ())) == []


def test_a_ban_of_every_remaining_token_wins():
    left = torch.tensor([[0.0, -math.inf, -math.inf, -math.inf]])
    out = NoRepeatNgram(1)(left, Step(SCORES), [Hypothesis(0, 0, (), (0, 1))])
    assert out.tolist() == [[-math.inf, -math.inf, 0.0, -math.inf]]


def test_a_ban_on_every_token_is_lifted():
    assert banned(NoRepeatNgram(1), Hypothesis(0, 0, (), (0, 1, 2, 3))) == []


@settings(deadline=None, max_examples=150)
@given(data=st.data(), n=st.integers(1, 4), length=st.integers(0, 12))
def test_the_banned_set_is_that_of_hugging_face(data, n, length):
    ids = data.draw(
        st.lists(st.lists(st.integers(0, 3), min_size=length, max_size=length), min_size=2, max_size=3)
    )
    scores = SCORES.expand(len(ids), 4)
    theirs = NoRepeatNGramLogitsProcessor(n)(torch.tensor(ids, dtype=torch.long).view(len(ids), -1), scores)
    ours = NoRepeatNgram(n)(
        scores, Step(scores), [Hypothesis(0, 0, tuple(row[:3]), tuple(row[3:])) for row in ids]
    )
    possible = (theirs > -math.inf).any(dim=-1)
    assert torch.equal(ours[possible], theirs[possible])
    assert torch.equal(ours[~possible], scores[~possible])


@pytest.mark.parametrize(("n", "error"), [(0, ValueError), (2.5, TypeError)])
def test_impossible_n_is_refused(n, error):
    with pytest.raises(error, match=r"NoRepeatNgram\.n is"):
        NoRepeatNgram(n)


def test_dry_by_hand():
    # "2 3 4 … 2 3": token 4 would make a repetition of two tokens longer.
    path = Hypothesis(0, 0, (1, 2, 3, 4, 1), (2, 3))
    assert DRY().penalties(path) == pytest.approx({4: 0.8 * 1.75})
    assert DRY(allowed=3).penalties(path) == pytest.approx({4: 0.8})
    assert DRY(allowed=4).penalties(path) == {}
    scores = torch.log_softmax(torch.zeros(1, 6), dim=-1)
    out = DRY()(scores, Step(scores), [path])
    assert (scores - out)[0].tolist() == pytest.approx([0, 0, 0, 0, 1.4, 0], abs=1e-6)


def test_breakers_end_a_match_and_are_never_penalised():
    path = Hypothesis(0, 0, (1, 2, 3, 4, 1, 2, 3))
    assert DRY(breakers=(2,)).penalties(path) == {}
    assert DRY(breakers=(2,), allowed=1).penalties(path) == pytest.approx({4: 0.8})
    assert DRY(breakers=(4,)).penalties(path) == {}
    assert DRY(breakers=(3,)).penalties(path) == {}


def test_the_prompt_and_the_distant_past_can_be_left_out():
    path = Hypothesis(0, 0, (2, 3, 4), (2, 3))
    assert DRY().penalties(path) == pytest.approx({4: 0.8})
    assert DRY(prompt=False).penalties(path) == {}
    assert DRY(last=5).penalties(path) == pytest.approx({4: 0.8})
    assert DRY(last=4).penalties(path) == {}


def test_a_long_loop_does_not_overflow():
    path = Hypothesis(0, 0, (), (1, 2) * 400)
    assert DRY(base=1.2).penalties(path) == pytest.approx({1: 0.8 * 1.2**48})
    assert DRY().penalties(path) == {1: 1e9}
    assert DRY(base=1e9).penalties(path) == {1: 1e9}
    assert DRY(base=1e9, multiplier=0).penalties(path) == {1: 0.0}
    scores = torch.tensor([[-0.5, -1.0, -2.0]])
    assert torch.isfinite(DRY(base=1e9)(scores, Step(scores), [path])).all()


def test_ids_beyond_the_scores_are_left_alone():
    scores = torch.tensor([[-0.5, -1.0]])
    assert torch.equal(DRY()(scores, Step(scores), [Hypothesis(0, 0, (0, 1, 9, 0, 1))]), scores)


tokens = st.lists(st.integers(0, 3), max_size=14).map(tuple)


@given(tokens, tokens, st.sets(st.integers(0, 3), max_size=1).map(tuple), st.integers(1, 3))
def test_the_penalty_is_its_definition(prompt, written, breakers, allowed):
    said = prompt + written
    wanted = {}
    for token in range(4):
        matches = [
            length
            for length in range(1, len(said))
            for start in range(len(said) - length)
            if said[start : start + length] == said[len(said) - length :]
            and said[start + length] == token
            and not set(breakers) & {token, *said[start : start + length]}
        ]
        if matches and max(matches) >= allowed:
            wanted[token] = 0.8 * 1.75 ** (max(matches) - allowed)
    found = DRY(breakers=breakers, allowed=allowed).penalties(Hypothesis(0, 0, prompt, written))
    assert found == pytest.approx(wanted)


@pytest.mark.parametrize("arguments", [{"multiplier": -1}, {"base": 0.5}, {"allowed": 0}, {"last": 0}])
def test_impossible_arguments_are_refused(arguments):
    with pytest.raises(ValueError, match=r"DRY\.\w+ is"):
        DRY(**arguments)
