import math

import pytest
import torch

import unspool as us
from unspool.decode.hypothesis import Job
from unspool.decode.search.masked_decoding import MaskedText, require_infilling
from unspool.testing import bigram

JOB = Job(((0,),), (9,), (1,), eos=frozenset({2}))


def test_a_path_grows_up_to_the_first_hidden_place_by_hand():
    canvas = MaskedText.blank(JOB.hypothesis(0, 0), 4, mask=9)
    assert canvas.masked == [0, 1, 2, 3]
    canvas.choose(0, 5, -0.5)
    canvas.choose(2, 2, -0.25)
    path = canvas.extend(canvas.hypothesis, JOB, last=False)
    assert (path.tokens, path.logps, path.finish_reason) == ((5,), (-0.5,), None)
    canvas.choose(1, 6, -1.0)
    path = canvas.extend(path, JOB, last=False)
    assert (path.tokens, path.finish_reason) == ((5, 6, 2), "eos")
    assert canvas.score == pytest.approx((-0.5 - 1.0 - 0.25) / 4)
    canvas.mask_position(0)
    assert canvas.masked == [0, 3]


def test_the_last_time_a_text_without_an_end_has_the_length_that_it_has():
    canvas = MaskedText.blank(JOB.hypothesis(0, 0), 1, mask=9)
    canvas.choose(0, 5, 0.0)
    assert canvas.extend(canvas.hypothesis, JOB, last=True).finish_reason == "length"


def test_a_model_that_says_one_token_after_another_is_refused():
    model = bigram(torch.full((3, 3), -math.log(3)))
    with pytest.raises(ValueError, match=r"MaskPredict\(.*\) needs a masked model, and a TableModel"):
        require_infilling(model, us.MaskPredict())
