from unspool.lab.claims.right_to_left import CLAIM


def test_every_part_can_fail(every_part_can_fail):
    good = {"left to right": [0.1, 0.5], "right to left": [0.2, 0.9]}
    every_part_can_fail(CLAIM, good, [{"right to left": [0.2, 0.55]}, {"left to right": [0.3, 0.5]}])
