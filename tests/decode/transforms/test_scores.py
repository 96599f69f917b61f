import math

import pytest
import torch

from unspool.decode.hypothesis import Hypothesis
from unspool.decode.transforms.scores import alive, applied, ban, ban_each, cut, peaks, precise
from unspool.interfaces import Step

INF = math.inf


def test_peaks_are_the_row_maxima():
    assert peaks(torch.tensor([[-1.0, -0.5], [-INF, -2.0]])).tolist() == [[-0.5], [-2.0]]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([0.0, math.nan], "row 1 of the scores holds NaN"),
        ([-INF, -INF], "row 1 of the scores holds −∞ only"),
        ([0.0, INF], r"row 1 of the scores holds \+∞"),
    ],
)
def test_peaks_name_the_row_that_cannot_be_drawn_from(row, message):
    with pytest.raises(ValueError, match=message):
        peaks(torch.tensor([[-1.0, -0.5], row]))


@pytest.mark.parametrize("scores", [torch.zeros(3), torch.zeros(2, 0), torch.zeros(2, 3, dtype=torch.long)])
def test_peaks_refuse_what_is_no_matrix_of_floats(scores):
    with pytest.raises(ValueError, match="matrix of floats"):
        peaks(scores)


def test_peaks_refuse_a_history_of_another_length():
    with pytest.raises(ValueError, match="2 rows of scores came with 1 hypotheses"):
        peaks(torch.zeros(2, 3), [Hypothesis(0, 0, ())])


def test_half_precision_is_widened_and_float64_left_alone():
    assert precise(torch.zeros(1, 1, dtype=torch.bfloat16)).dtype == torch.float32
    assert precise(torch.zeros(1, 1, dtype=torch.float64)).dtype == torch.float64


def test_cut_and_alive_are_each_others_inverse():
    scores = torch.tensor([[-1.0, -2.0, -INF]])
    kept = cut(scores, torch.tensor([[True, False, True]]))
    assert kept.tolist() == [[-1.0, -INF, -INF]]
    assert alive(kept).tolist() == [[True, False, False]]
    assert scores.tolist() == [[-1.0, -2.0, -INF]]


def test_a_ban_cuts_the_banned_tokens():
    scores = torch.tensor([[-1.0, -2.0, -3.0]])
    out = ban(scores, Step(scores), torch.tensor([[True, False, False]]))
    assert out.tolist() == [[-INF, -2.0, -3.0]]
    assert scores.tolist() == [[-1.0, -2.0, -3.0]]


def test_a_ban_wins_over_the_rules_before_it():
    model = torch.tensor([[-0.5, -1.5, -1.0], [-1.0, -2.0, -3.0]])
    left = torch.tensor([[0.0, -INF, -INF], [-1.0, -2.0, -INF]])
    out = ban(left, Step(model), torch.tensor([[True, False, False], [True, False, False]]))
    assert out.tolist() == [[-INF, -INF, 0.0], [-INF, -2.0, -INF]]


def test_a_ban_on_the_whole_vocabulary_is_lifted():
    model = torch.tensor([[-0.5, -INF, -1.0]])
    left = torch.tensor([[-0.1, -INF, -2.0]])
    assert ban(left, Step(model), torch.tensor([[True, True, True]])).tolist() == left.tolist()
    # What the model itself finds impossible is no way out either.
    assert ban(left, Step(model), torch.tensor([[True, False, True]])).tolist() == left.tolist()


@pytest.mark.parametrize("rule", [lambda *_: None, lambda scores, *_: scores[0], lambda *_: [[0.0]]])
def test_a_transform_that_returns_no_scores_is_named(rule):
    scores_NV = torch.zeros(2, 3)
    with pytest.raises(TypeError, match=r"returned .* for scores of shape \(2, 3\)"):
        applied(rule, scores_NV, Step(scores_NV), [Hypothesis(0, 0, ())] * 2)
    assert applied(lambda scores, *_: scores + 1, scores_NV, Step(scores_NV), []).equal(scores_NV + 1)


def test_each_banned_token_is_cut_from_its_own_row():
    scores = torch.tensor([[-1.0, -2.0, -3.0], [-1.0, -2.0, -3.0]])
    out = ban_each(scores, Step(scores), [(0, 1), (0, 2)])
    assert out.tolist() == [[-1.0, -INF, -INF], [-1.0, -2.0, -3.0]]
    assert ban_each(scores, Step(scores), []) is scores
