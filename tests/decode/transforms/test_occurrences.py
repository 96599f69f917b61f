import math

import pytest
import torch

from unspool.decode.hypothesis import Hypothesis
from unspool.decode.transforms.penalties import OccurrencePenalty, occurrences, tokens_so_far

SCORES = torch.zeros(2, 5)


def test_the_prompt_comes_first_if_asked_for():
    path = Hypothesis(0, 0, (1, 2), (3,))
    assert tokens_so_far(path, prompt=True) == (1, 2, 3)
    assert tokens_so_far(path, prompt=False) == (3,)


def test_tokens_are_counted_on_their_own_path():
    history = [Hypothesis(0, 0, (1,), (3, 1, 3)), Hypothesis(0, 0, (4,), ())]
    row, token, count = occurrences(history, True, SCORES)
    assert sorted(zip(row.tolist(), token.tolist(), count.tolist(), strict=True)) == [
        (0, 1, 2),
        (0, 3, 2),
        (1, 4, 1),
    ]
    row, token, count = occurrences(history, False, SCORES)
    assert sorted(zip(row.tolist(), token.tolist(), count.tolist(), strict=True)) == [(0, 1, 1), (0, 3, 2)]


def test_empty_paths_and_foreign_ids_count_nothing():
    for path in (Hypothesis(0, 0, ()), Hypothesis(0, 0, (5, 99))):
        assert [len(found) for found in occurrences([path, path], True, SCORES)] == [0, 0, 0]


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"penalty": math.inf}, r"OccurrencePenalty.penalty is inf"),
        ({"penalty": 1.0, "prompt": 1}, r"OccurrencePenalty.prompt is 1"),
    ],
)
def test_nonsense_is_refused(settings, match):
    with pytest.raises((TypeError, ValueError), match=match):
        OccurrencePenalty(**settings)
