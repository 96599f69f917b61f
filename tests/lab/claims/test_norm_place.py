from unspool.lab.claims import norm_place
from unspool.lab.claims.norm_place import CLAIM, RUNS, curve
from unspool.training import Diverged


def test_a_curve_has_a_point_for_every_update():
    assert len(curve("post", 0, 1, 3, 1)) == 3


def test_a_diverged_run_repeats_its_last_loss(monkeypatch):
    def train_model(*_, losses, **others):
        losses += [5.0, 9.0]
        raise Diverged("it is not finite")

    monkeypatch.setattr(norm_place, "train_model", train_model)
    assert curve("post", 0, 1, 4, 1) == [5.0, 9.0, 9.0, 9.0]


def test_every_part_can_fail(every_part_can_fail):
    good = dict(zip((f"{name}: loss at the end" for name in RUNS), (2.0, 2.0, 3.0, 2.0), strict=True))
    changes = [
        {"pre-LN, no warm-up: loss at the end": 2.5},
        {"post-LN, no warm-up: loss at the end": 2.1},
        {"post-LN, warm-up: loss at the end": 2.9},
    ]
    every_part_can_fail(CLAIM, good, changes)
