from unspool.lab.claims.attention_lengths import CLAIM


def test_every_part_can_fail(every_part_can_fail):
    good = {"attention": [1.0, 0.95], "fixed": [0.9, 0.1]}
    changes = [{"attention": [1.0, 0.8]}, {"fixed": [0.3, 0.2]}, {"fixed": [1.0, 0.49]}]
    every_part_can_fail(CLAIM, good, changes)
