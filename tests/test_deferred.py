import gc
import importlib
import sys

import pytest

from unspool.lazy import declared, gc_paused

SOURCE = """
from typing import TYPE_CHECKING

from unspool.lazy import deferred

if TYPE_CHECKING:
    from math import nothing as nothing, sqrt as sqrt
    from fractions import Fraction as Fraction

__version__ = "1"
__all__, __getattr__, __dir__ = deferred(__name__)
"""


@pytest.fixture
def package(monkeypatch, tmp_path):
    """A package with three names that live elsewhere."""
    (tmp_path / "late").mkdir()
    (tmp_path / "late" / "__init__.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("late")
    del sys.modules["late"]


def test_the_imports_for_type_checkers_are_the_list(package):
    assert declared(package) == {"nothing": "math", "sqrt": "math", "Fraction": "fractions"}
    assert package.__all__ == ["Fraction", "nothing", "sqrt"]
    assert {"Fraction", "nothing", "sqrt", "__version__"} <= set(dir(package))
    assert "TYPE_CHECKING" not in dir(package)


def test_a_name_is_looked_up_once(package):
    assert "sqrt" not in vars(package)
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


def test_the_collector_rests_and_is_left_as_it_was(package):
    assert gc.isenabled()
    with gc_paused():
        assert not gc.isenabled()
        with gc_paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(AttributeError):
        package.nothing  # noqa: B018
    assert gc.isenabled()


def test_what_was_made_meanwhile_is_among_the_old():
    with gc_paused():
        made = [[]]
    assert any(each is made for each in gc.get_objects(generation=2))
    assert gc.get_freeze_count() == 0


def test_what_somebody_froze_stays_frozen():
    kept = [[]]
    assert any(it is kept for it in gc.get_objects())
    gc.freeze()
    try:
        with gc_paused():
            pass
        assert not any(it is kept for it in gc.get_objects())  # frozen objects are not listed
    finally:
        gc.unfreeze()
