from unspool.lab.claims.key_elimination import CLAIM


def test_every_part_can_fail(every_part_can_fail):
    good = {
        "largest change of an attention weight": 1e-6,
        "largest change of log p": 1e-6,
        "largest change of log p, back at rank I": 1e-6,
        "mean change of log p, back at rank I / 2": 0.1,
        "parameters of a head, I = J/2: queries and keys": 1024.0,
        "parameters of a head: W̃": 1024.0,
    }
    changes = [
        {"largest change of an attention weight": 1e-3},
        {"largest change of log p": 1e-3},
        {"mean change of log p, back at rank I / 2": 1e-6},
        {"parameters of a head: W̃": 512.0},
    ]
    every_part_can_fail(CLAIM, good, changes)
