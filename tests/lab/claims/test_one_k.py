import pytest
import torch

from unspool.lab.claims.one_k import CLAIM, overlap


def test_overlap_by_hand():
    kept = torch.tensor([[True, True, False, False], [True, False, False, False]])
    true = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0]])
    assert overlap(kept, true) == pytest.approx(2 / 3)  # 2·1/(2+1) and 2·1/(1+2)
    assert overlap(true > 0, true) == 1.0


def test_every_part_can_fail(every_part_can_fail):
    good = {"words that can follow, 10 % of contexts have at most": 2.0, "… 90 % have at most": 20.0}
    for name in ("truth with a tail", "trained model"):
        good |= {f"{name}: best of one p": 0.8, f"{name}: best of one k": 0.6}
    changes = [
        {"… 90 % have at most": 3.0},
        {"truth with a tail: best of one p": 0.6},
        {"trained model: best of one k": 0.79},
    ]
    every_part_can_fail(CLAIM, good, changes)
