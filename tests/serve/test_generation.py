import math

import pytest

import unspool as us
from unspool.serve.requests import Limits
from unspool.serve.streaming import Asked, Begun, generate, scored_prompt
from unspool.testing import random_table

OPTIONS = {"max_new_tokens": 5, "n": 2, "seed": 1, "stop": None}


def test_it_tells_that_it_has_begun_and_then_every_piece():
    model, told = random_table(9, seed=1), []
    generate(model, Asked([3, 4], us.Sample(), OPTIONS), Limits(), told.append)
    begun, *pieces = told
    assert isinstance(begun, Begun)
    assert begun.job.prompts == ((3, 4),)
    expected = us.generate(model, [3, 4], us.Sample(), n=2, max_new_tokens=5, seed=1)
    for sample, output in enumerate(expected):
        mine = [piece for piece in pieces if piece.sample == sample]
        assert tuple(token for piece in mine for token in piece.tokens) == output.tokens


def test_nothing_is_told_before_all_is_checked():
    model, told = random_table(9, seed=1), []
    with pytest.raises(ValueError, match="allows"):
        generate(model, Asked([3], us.Beam(1000), OPTIONS), Limits(), told.append)
    with pytest.raises(ValueError, match="reads 3"):
        generate(model, Asked([3] * 4, us.Greedy(), OPTIONS), Limits(prompt_tokens=3), told.append)
    assert told == []


def test_prompts_are_scored(compiled_model):
    ids = [1 + k % 29 for k in range(55)]
    piece = scored_prompt(compiled_model, ids, 2)
    assert piece.logps[1:] == us.score(compiled_model, ids[:1], ids[1:]).logps
    assert math.isnan(piece.logps[0])
    assert [len(ranked.model) for ranked in piece.ranked] == [0, *[2] * 54]
