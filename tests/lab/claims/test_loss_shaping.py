from unspool.lab.claims.loss_shaping import CLAIM


def test_every_part_can_fail(every_part_can_fail):
    good = {
        **{f"plenty of sentences, {kind}": [0.1, 0.11, 0.2] for kind in ("focus", "near")},
        **{f"few sentences, {kind}": [0.9, 0.8, 0.95] for kind in ("focus", "near")},
    }
    changes = [
        {"plenty of sentences, near": [0.1, 0.05, 0.2]},
        {f"few sentences, {kind}": [0.9, 0.89, 0.95] for kind in ("focus", "near")},
    ]
    every_part_can_fail(CLAIM, good, changes)
