from unspool.lab.claims.exposure_bias import CLAIM


def test_every_part_can_fail(every_part_can_fail):
    lost = "texts that have become impossible after {} words"
    good = {
        **{"gap after 2 words": 0.01, "gap after 8 words": 0.1},
        **{lost.format(2): 0.05, lost.format(8): 0.3},
    }
    changes = [{"gap after 8 words": -0.1}, {"gap after 2 words": 0.2}, {lost.format(8): 0.1}]
    every_part_can_fail(CLAIM, good, changes)
