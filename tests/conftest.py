import os
import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings

from unspool.io import cache_folder

# Tests that set UNSPOOL_CACHE need not compile every kernel again.
os.environ.setdefault("NUMBA_CACHE_DIR", str(cache_folder() / "kernels"))

# A deadline measures the machine and whoever else uses it, not the code.
settings.register_profile("project", deadline=None, max_examples=50)
settings.load_profile("project")

LONGEST = (
    "test_lab",
    "test_contributing",
    "test_distributed",
    "test_recipes",
    "test_smollm2",
    "test_learning",
    "test_crash",
    "test_examples",
)
"""Files that take longest: they come first, so that no worker is left with one of them at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first."""
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


@pytest.fixture(autouse=True, scope="session")
def no_curve_pictures() -> Iterator[None]:
    """Training runs draw no picture of their curves: it takes longer than most runs of tests."""
    with pytest.MonkeyPatch.context() as patch:
        if "unspool.training.run_folder" in sys.modules:  # its import takes seconds
            patch.setattr("unspool.training.run_folder.draw_curves", lambda points, path: False)
        yield


@pytest.fixture
def curve_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """For one test, training runs draw a picture of their curves."""
    from unspool.plots.seeds import draw_curves

    monkeypatch.setattr("unspool.training.run_folder.draw_curves", draw_curves)
