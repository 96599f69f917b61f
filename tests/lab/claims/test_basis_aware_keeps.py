import torch

from unspool.basis import BasisTest
from unspool.lab.claims.basis_aware_keeps import CLAIM, judged


def test_the_worked_example_by_hand():
    # p̂ = (.331, .498, .171); with p* = (0, .6, .4), δ = log(.4 / .171): the threshold there keeps nothing.
    w = torch.tensor([[0.55], [0.71], [0.29]])
    logp = (w[:, 0] * 2.55).log_softmax(-1)[None]
    found = judged(BasisTest(w), logp, torch.tensor([[0.0, 0.6, 0.4]]))
    assert (found["threshold"], found["threshold recall"]) == (0, 0.0)
    assert found["threshold wrong"] == 0


def test_every_part_can_fail(every_part_can_fail):
    good = {
        "at the optimum: test wrong": 0,
        "at the optimum: test recall": 0.5,
        "at the optimum: threshold recall": 0.1,
        "as trained: of what the test adds, possible": 0.99,
        "worked example as in the document": 1.0,
    }
    changes = [
        {"at the optimum: test wrong": 1},
        {"at the optimum: test recall": 0.12},
        {"as trained: of what the test adds, possible": 0.9},
        {"worked example as in the document": 0.0},
    ]
    every_part_can_fail(CLAIM, good, changes)
