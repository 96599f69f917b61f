import math

import pytest

from unspool.decode.hypothesis import Job
from unspool.decode.multinomial import Multinomial
from unspool.decode.ranking import GNMT, Coverage, FirstFull, Length
from unspool.decode.search.beam_state import BeamOptions
from unspool.testing import random_table

MODEL = random_table(5, seed=1)


def job(n):
    return Job(((1,),), (5,), (0,), n)


def half(scores_NV, step, history):
    return scores_NV / 2


@pytest.mark.parametrize("width", [0, -3])
def test_a_beam_holds_at_least_one(width):
    with pytest.raises(ValueError, match="width is"):
        BeamOptions(width)


@pytest.mark.parametrize("width", [2.0, True, "5", None])
def test_a_width_is_a_whole_number(width):
    with pytest.raises(TypeError, match="width is"):
        BeamOptions(width)


@pytest.mark.parametrize("patience", [0, -1.0, math.nan, math.inf])
def test_patience_is_positive_and_finite(patience):
    with pytest.raises(ValueError, match="patience"):
        BeamOptions(3, patience=patience)


@pytest.mark.parametrize("rule", [Multinomial(), 3, GNMT])
def test_only_transforms_stand_among_the_transforms(rule):
    with pytest.raises(TypeError, match="is not a transform"):
        BeamOptions(3, (rule,))


@pytest.mark.parametrize(
    "wrong", [{"length_penalty": 0.6}, {"length_penalty": GNMT}, {"stop": "never"}, {"coverage": 0.2}]
)
def test_a_rule_of_the_wrong_kind_is_refused_with_an_example(wrong):
    with pytest.raises(TypeError, match="Give "):
        BeamOptions(3, **wrong)


def test_no_more_texts_than_are_kept():
    assert BeamOptions(4).bind(MODEL, job(4)) == BeamOptions(4)
    with pytest.raises(ValueError, match="n=5 is more than the beam keeps, 4"):
        BeamOptions(4).bind(MODEL, job(5))
    with pytest.raises(ValueError, match="keeps, 2"):
        BeamOptions(4, patience=0.5).bind(MODEL, job(3))


@pytest.mark.parametrize(
    ("width", "patience", "size"), [(5, 1.0, 5), (5, 2.0, 10), (10, 1.1, 11), (5, 0.5, 3), (2, 0.1, 1)]
)
def test_the_size_of_the_pool(width, patience, size):
    assert BeamOptions(width, patience=patience).pool_size == size


def test_candidates_stand_by_for_every_kind_of_end():
    assert BeamOptions(5).candidates(0) == BeamOptions(5).candidates(1) == 10
    assert BeamOptions(5).candidates(3) == 20
    assert BeamOptions(1).candidates(3) == 1


def test_arguments_are_what_differs_from_the_defaults():
    assert list(BeamOptions(5).arguments()) == []
    options = BeamOptions(5, (half,), Length(1.0), Coverage(0.3), 2.0, FirstFull())
    assert list(options.arguments()) == [
        repr(half),
        "length_penalty=Length(alpha=1.0)",
        "coverage=Coverage(beta=0.3)",
        "patience=2.0",
        "stop=FirstFull()",
    ]
