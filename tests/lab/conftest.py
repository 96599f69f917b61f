import pytest

from unspool.lab.claim import Claim


@pytest.fixture
def every_part_can_fail():
    """Numbers that reproduce a claim, and for each part of its criterion a change that makes this part fail."""

    def check(claim, good, changes):
        assert claim.verdict([good]) == "reproduced", claim.held([good])
        assert len(changes) == len(claim.criterion)
        for at, change in enumerate(changes):
            assert claim.held([{**good, **change}])[at] == [False], list(claim.criterion)[at]
            assert claim.verdict([good, {**good, **change}]) == "mixed"

    return check


def tossed(seed, quick, progress):
    progress(0.5)
    return {"heads": 0.4 + 0.1 * seed, "by toss": [0.0, float(seed)], "quickly": float(quick)}


def drawn(figure, runs):
    figure.subplots().plot([run["heads"] for run in runs])


@pytest.fixture
def coin():
    """A claim whose first part holds with every seed, and whose second one from seed 2 on."""
    return Claim(
        name="coin",
        statement="A coin <b>lands</b> | on its head.",
        source="Somebody's book, page 7",
        measured="Three tosses.",
        criterion={
            "heads > 0.45": lambda n: n["heads"] > 0.45,
            "heads > 0.55": lambda n: n["heads"] > 0.55,
        },
        measure=tossed,
        draw=drawn,
        limits="It is a small coin.",
    )
