from unspool.lab.claims.exposure_bias import CLAIM


def test_every_part_can_fail(every_part_can_fail):
    good = {"gap after 2 words": 0.01, "gap after 8 words": 0.1}
    every_part_can_fail(CLAIM, good, [{"gap after 8 words": -0.1}, {"gap after 2 words": 0.2}])
