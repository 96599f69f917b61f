import sys
import types

import pytest

from unspool.deferred import deferred


@pytest.fixture
def package(monkeypatch):
    """A package with two names that live elsewhere."""
    package = types.ModuleType("late")
    package.__getattr__ = deferred("late", {"sqrt": "math", "nothing": "math"})
    monkeypatch.setitem(sys.modules, "late", package)
    return package


def test_a_name_is_looked_up_once(package):
    assert package.sqrt(9) == 3
    assert vars(package)["sqrt"] is package.sqrt


def test_a_name_can_be_imported(package):
    from late import sqrt

    assert sqrt(16) == 4


def test_an_unknown_name_names_the_package(package):
    with pytest.raises(AttributeError, match="module 'late' has no attribute 'cbrt'"):
        package.cbrt  # noqa: B018


def test_a_home_without_the_name_says_so(package):
    with pytest.raises(AttributeError, match="nothing"):
        package.nothing  # noqa: B018
