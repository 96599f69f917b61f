from unspool.lab.claims.safe_threshold import CLAIM


def test_every_part_can_fail(every_part_can_fail):
    good = {
        **{"kept above τ": 5, "impossible among them": 0, "impossible above τ / 10": 3},
        "largest overestimation beyond its context's τ": 0.0,
    }
    changes = [
        {"impossible among them": 1},
        {"largest overestimation beyond its context's τ": 0.1},
        {"impossible above τ / 10": 0},
    ]
    every_part_can_fail(CLAIM, good, changes)
    assert CLAIM.held([{**good, "kept above τ": 0}])[0] == [False]
