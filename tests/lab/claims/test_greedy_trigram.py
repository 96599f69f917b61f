from unspool.lab.claims.greedy_trigram import CLAIM, walk


def test_a_walk_by_hand():
    # (0, 1) → 2, (1, 2) → 0, (2, 0) → 1: back at (0, 1) after three pairs.
    following = [[0, 2, 0], [0, 0, 0], [1, 0, 0]]
    assert walk(following, (0, 1)) == (3, 3)
    assert walk(following, (0, 0)) == (1, 1)
    assert walk(following, (2, 2)) == (4, 3)  # 22, 20, 01, 12, then 20 again


def test_every_part_can_fail(every_part_can_fail):
    good = {
        "bound, V² + 1": 10.0,
        "pairs before one comes again, most": 9.0,
        "greedy texts that end in a circle": 1.0,
        "sampled texts that end in a circle": 0.05,
    }
    changes = [
        {"pairs before one comes again, most": 11.0},
        {"greedy texts that end in a circle": 0.9},
        {"sampled texts that end in a circle": 0.5},
    ]
    every_part_can_fail(CLAIM, good, changes)
