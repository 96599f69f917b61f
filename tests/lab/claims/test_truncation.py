import pytest
import torch

from unspool.basis import BasisTest
from unspool.lab.claim import silent
from unspool.lab.claims.truncation import compare_tests, overlap, safe_threshold, truncation_constraint


def test_overlap_by_hand():
    kept = torch.tensor([[True, True, False, False], [True, False, False, False]])
    true = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0]])
    assert overlap(kept, true) == pytest.approx(2 / 3)  # 2·1/(2+1) and 2·1/(1+2)
    assert overlap(true > 0, true) == 1.0


def test_every_part_of_safe_threshold_can_fail(every_part_can_fail):
    good = {
        **{"kept above τ": 5, "impossible among them": 0, "impossible above τ / 10": 3},
        "largest overestimation beyond its context's τ": 0.0,
    }
    changes = [
        {"impossible among them": 1},
        {"largest overestimation beyond its context's τ": 0.1},
        {"impossible above τ / 10": 0},
    ]
    every_part_can_fail(safe_threshold, good, changes)
    assert safe_threshold.held([{**good, "kept above τ": 0}])[0] == [False]


def test_every_part_of_truncation_constraint_can_fail(every_part_can_fail):
    kinds = ("threshold", "mass", "test at rank 0")
    good = {"tokens": 480, "tokens proved possible": 40}
    good |= {f"differences between program and {kind}": 0 for kind in kinds}
    changes = [{f"differences between program and {kind}": 1} for kind in kinds]
    every_part_can_fail(truncation_constraint, good, [*changes, {"tokens proved possible": 0}])


def test_the_constraint_holds_in_a_quick_run():
    numbers = truncation_constraint.measure(1, True, silent)
    assert numbers["tokens"] == 240
    assert all(row == [True] for row in truncation_constraint.held([numbers]))


def test_the_worked_example_by_hand():
    # p̂ = (.331, .498, .171); with p* = (0, .6, .4), δ = log(.4 / .171): the threshold there keeps nothing.
    w = torch.tensor([[0.55], [0.71], [0.29]])
    logp = (w[:, 0] * 2.55).log_softmax(-1)[None]
    found, gains = compare_tests(BasisTest(w), logp, torch.tensor([[0.0, 0.6, 0.4]]))
    assert (found["threshold"], found["threshold recall"]) == (0, 0.0)
    assert found["threshold wrong"] == 0
    assert gains == [found["test recall"]]
