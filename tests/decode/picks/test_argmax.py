import math

import pytest
import torch

from unspool.decode.picks import FEW, ArgMax
from unspool.interfaces import Step

SCORES = torch.tensor([[0.1, 0.7, 0.2], [0.4, 0.2, 0.4]]).log()


def test_the_most_probable_token_and_the_smallest_of_equals():
    assert ArgMax().draw(SCORES, Step(SCORES), []).tolist() == [1, 0]


@pytest.mark.parametrize("V", [FEW // 4, FEW // 4 + 1, FEW])  # by torch, and compiled
def test_many_scores_are_searched_to_the_same_end(V):
    torch.manual_seed(V)
    scores_NV = -torch.randint(0, 50, (4, V)) / 8  # each is there many times
    scores_NV[1] = -math.inf
    scores_NV[2, : V // 2] = -math.inf
    first_N = [row.tolist().index(row.max().item()) for row in scores_NV]
    assert ArgMax().draw(scores_NV, Step(scores_NV), []).tolist() == first_N
    scores_NV[3, V - 1] = math.nan
    assert ArgMax().draw(scores_NV, Step(scores_NV), []).tolist() == [*first_N[:3], V - 1]
