from unspool.lab.claims.bottleneck_rank import CLAIM, WIDTHS


def test_every_part_can_fail(every_part_can_fail):
    good = {"rank of the truth": 60, "achieved": [3.0, 2.0, 1.0], "least": [2.0, 1.0, 0.5]}
    for width in WIDTHS:
        good |= {f"{kind}, d = {width}: rank": width + 1 for kind in ("recurrent", "Transformer")}
        good[f"mixture of softmaxes, d = {width}: rank"] = 40
    changes = [
        {"Transformer, d = 8: rank": 10},
        {"mixture of softmaxes, d = 4: rank": 5},
        {"achieved": [3.0, 0.5, 1.0]},
    ]
    every_part_can_fail(CLAIM, good, changes)
