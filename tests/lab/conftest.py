import pytest

from unspool.lab.claim import Check, Claim


@pytest.fixture
def every_part_can_fail():
    """Numbers with which a check holds, and for each part a change that makes this part fail."""

    def test(check, good, changes):
        assert check.verdict([good] * check.seeds) == "holds", check.held([good])
        assert len(changes) == len(check.criterion)
        for at, change in enumerate(changes):
            assert check.held([{**good, **change}])[at] == [False], list(check.criterion)[at]
            assert check.verdict([good, {**good, **change}]) == "fails"

    return test


def tossed(seed, quick, progress):
    progress(0.5)
    return {"effect": 0.3 + 0.01 * (seed % 10), "heads": 0.5 + 0.1 * seed, "by toss": [0.0, float(seed)]}


def drawn(figure, runs):
    figure.subplots().plot([run["heads"] for run in runs])


@pytest.fixture
def coin():
    """A claim with an effect of 0.3 to 0.4, by the seed."""
    return Claim(
        name="coin",
        statement="A coin <b>lands</b> | on its head.",
        source="Somebody's book, page 7",
        measured="Three tosses.",
        primary="heads minus tails",
        matters=0.1,
        assumed=(0.3, 0.1),
        secondary=("heads",),
        seeds=10,
        measure=tossed,
        draw=drawn,
        limits="It is a small coin.",
    )


@pytest.fixture
def edge():
    """A check that fails with seed 104 and later ones."""
    return Check(
        name="edge",
        statement="A coin has an edge.",
        source="Somebody's book, page 8",
        measured="By hand.",
        criterion={"there are few heads": lambda n: n["heads"] < 10.85},
        seeds=3,
        measure=tossed,
        draw=drawn,
    )
