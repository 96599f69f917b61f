import math

import pytest
import torch

from unspool.decode.shortlist import chain
from unspool.decode.shortlist.best_tokens import MOST, compiled_best, compiles

SCORES = torch.tensor([[-3.0, -1.0, -1.0]])


def test_by_hand():
    values_NK, tokens_NK = compiled_best(SCORES, 2)
    assert (values_NK.tolist(), tokens_NK.tolist()) == ([[-1.0, -1.0]], [[1, 2]])


@pytest.mark.parametrize(
    "scores_NV", [SCORES.double(), SCORES.half(), SCORES.to("meta"), torch.tensor([[0.0, math.nan]])]
)
def test_what_is_no_matter_for_compiled_code_is_left_to_torch(scores_NV):
    assert compiled_best(scores_NV, 2) is None


def test_many_of_a_row_are_left_to_torch():
    assert compiled_best(torch.zeros(1, 2 * MOST), MOST + 1) is None
    assert compiled_best(torch.zeros(1, 2 * MOST), MOST) is not None


def test_without_numba_all_is(monkeypatch):
    monkeypatch.setattr(chain, "COMPILED", False)
    assert not compiles(SCORES)
    assert compiled_best(SCORES, 2) is None
