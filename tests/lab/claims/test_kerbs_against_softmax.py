from unspool.lab.claims.kerbs_against_softmax import CLAIM


def test_every_part_can_fail(every_part_can_fail):
    others = ("softmax", "softmax, wider", "KerBS, no kernel", "KerBS, no allocation")
    every_part_can_fail(CLAIM, {"KerBS": 0.5, **dict.fromkeys(others, 0.6)}, [{it: 0.4} for it in others])
