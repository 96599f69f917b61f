import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from unspool.io import cache_folder

# Tests that set UNSPOOL_CACHE need not compile every kernel again.
os.environ.setdefault("NUMBA_CACHE_DIR", str(cache_folder() / "kernels"))

# A deadline measures the machine and whoever else uses it, not the code.
settings.register_profile("project", deadline=None)
settings.load_profile("project")


@pytest.fixture(autouse=True, scope="session")
def no_curve_pictures() -> Iterator[None]:
    """Training runs draw no picture of their curves: it takes longer than most runs of tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unspool.training.run_folder.draw_curves", lambda points, path: False)
        yield


@pytest.fixture
def curve_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """For one test, training runs draw a picture of their curves."""
    from unspool.plots.seeds import draw_curves

    monkeypatch.setattr("unspool.training.run_folder.draw_curves", draw_curves)
