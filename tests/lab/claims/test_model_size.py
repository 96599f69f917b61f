from unspool.lab.claims.model_size import CLAIM


def test_every_part_can_fail(every_part_can_fail):
    good = {"sampling": [0.1, 0.4, 0.8], "gap": [0.1, 0.3, 0.1]}
    changes = [{"sampling": [0.1, 0.9, 0.8]}, {"sampling": [0.1, 0.2]}, {"gap": [0.1, 0.2, 0.3]}]
    every_part_can_fail(CLAIM, good, changes)
