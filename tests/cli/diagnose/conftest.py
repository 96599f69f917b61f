import pytest

from unspool.cli import VERBS, diagnose


@pytest.fixture(autouse=True)
def _verb(monkeypatch):
    monkeypatch.setitem(VERBS, "diagnose", diagnose)
