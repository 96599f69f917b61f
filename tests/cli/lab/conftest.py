import pytest

from unspool.lab import claims
from unspool.lab.claim import Claim, Part, Source


def tossed(seed, quick, progress):
    progress(0.5)
    return {"heads": 0.4 + 0.1 * seed, "by toss": [0.0, float(seed)]}


def broken(seed, quick, progress):
    raise RuntimeError("the coin is gone")


def drawn(figure, runs):
    figure.subplots().plot([run["heads"] for run in runs])


def claim(name, measure):
    parts = (Part("heads > 0.45", lambda n: n["heads"] > 0.45),)
    return Claim(name, f"A {name} falls.", Source("A book", "page 7"), "Tosses.", parts, measure, drawn)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("UNSPOOL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache/lab"


@pytest.fixture
def coins(monkeypatch):
    """Two claims in place of the package's: a coin that is tossed in no time, and a die."""
    found = (claim("coin", tossed), claim("die", tossed))
    monkeypatch.setattr(claims, "CLAIMS", found)
    return found


@pytest.fixture
def lost(monkeypatch):
    """… and one whose experiment fails."""
    found = (claim("coin", tossed), claim("lost", broken))
    monkeypatch.setattr(claims, "CLAIMS", found)
    return found
