import math

import torch

from unspool.decode.transforms.forced_tokens import force

INF = math.inf


def test_forced_rows_hold_nothing_else():
    scores = torch.tensor([[-1.0, -2.0, -3.0], [-1.0, -INF, -3.0]])
    assert force(scores, [1], (1, 2)).tolist() == [[-1.0, -2.0, -3.0], [-INF, 0.0, 0.0]]
    assert scores[1].tolist() == [-1.0, -INF, -3.0]


def test_no_row_no_change():
    scores = torch.tensor([[-1.0, -2.0]])
    assert torch.equal(force(scores, [], (0,)), scores)
