from types import SimpleNamespace

import pytest
import torch

from unspool.decode.hypothesis import Hypothesis
from unspool.integrations.huggingface.custom_generate import make_generate_output

GIVEN = torch.tensor([[0, 5], [6, 7]])


def config(**more):
    return SimpleNamespace(**{"pad_token_id": 0, "eos_token_id": 2, "return_dict_in_generate": False} | more)


def path(request, tokens, **more):
    return Hypothesis(request, 0, (), tokens, (-1.0,) * len(tokens), (-0.5,) * len(tokens), "eos", **more)


def test_shorter_texts_are_padded_on_the_right():
    groups = [[path(0, (8, 9, 2))], [path(1, (2,))]]
    assert make_generate_output(groups, GIVEN, 1, config()).tolist() == [[0, 5, 8, 9, 2], [6, 7, 2, 0, 0]]
    ends = config(pad_token_id=None, eos_token_id=[3, 2])
    assert make_generate_output(groups, GIVEN, 1, ends).tolist()[1] == [6, 7, 2, 3, 3]


def test_scores_are_what_they_say():
    groups = [[path(0, (8, 2)), path(0, (9,), total=-7.0)]]
    out = make_generate_output(groups, GIVEN[:1], 2, config(return_dict_in_generate=True))
    assert out.sequences_scores.tolist() == [-2.0, -7.0]
    assert out.logps == ((-1.0, -1.0), (-1.0,))
    assert out.scores == ((-0.5, -0.5), (-0.5,))
    assert out.finish_reason == ("eos", "eos")


def test_fewer_texts_than_asked_for_are_not_filled_up():
    with pytest.raises(ValueError, match=r"3 texts of every prompt.*found 1 different ones of prompt 0"):
        make_generate_output([[path(0, (2,))]], GIVEN[:1], 3, config())
