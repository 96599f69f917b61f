import gc
import importlib
import sys

import pytest

from unspool.lazy import declared_imports, gc_paused

SOURCE = """
from typing import TYPE_CHECKING

from unspool.lazy import lazy_exports

if TYPE_CHECKING:
    from math import nothing as nothing, sqrt as sqrt
    from fractions import Fraction as Fraction

__version__ = "1"
__all__, __getattr__, __dir__ = lazy_exports(__name__)
"""


@pytest.fixture
def package(monkeypatch, tmp_path):
    """A package that exports three names of other modules."""
    (tmp_path / "late").mkdir()
    (tmp_path / "late" / "__init__.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("late")
    for name in [name for name in sys.modules if name.partition(".")[0] == "late"]:
        del sys.modules[name]


def test_exports_are_the_imports_for_type_checkers(package):
    assert declared_imports(package) == {"nothing": "math", "sqrt": "math", "Fraction": "fractions"}
    assert package.__all__ == ["Fraction", "nothing", "sqrt"]
    assert {"Fraction", "nothing", "sqrt", "__version__"} <= set(dir(package))
    assert "TYPE_CHECKING" not in dir(package)


def test_a_star_stands_for_the_names_that_a_package_imports(package, tmp_path):
    star = "if TYPE_CHECKING:\n    from late.names import *\n__all__, __getattr__, __dir__ = lazy_exports(__name__)\n"
    (tmp_path / "late" / "names").mkdir()
    (tmp_path / "late" / "names" / "__init__.py").write_text("from math import floor\nPI = 3\n")
    (tmp_path / "late" / "stars.py").write_text(
        f"from typing import TYPE_CHECKING\n{SOURCE.splitlines()[3]}\n{star}"
    )
    stars = importlib.import_module("late.stars")
    assert stars.__all__ == ["floor"]
    assert stars.floor(1.5) == 1
    assert "late.names" in sys.modules


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


def test_a_name_that_its_module_does_not_define_is_an_attribute_error(package):
    with pytest.raises(AttributeError, match="nothing"):
        package.nothing  # noqa: B018


def test_gc_is_paused_and_restored(package):
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


def test_objects_created_while_gc_is_paused_move_to_the_oldest_generation():
    with gc_paused():
        created = [[]]
    assert any(each is created for each in gc.get_objects(generation=2))
    assert gc.get_freeze_count() == 0


def test_frozen_objects_stay_frozen():
    kept = [[]]
    assert any(it is kept for it in gc.get_objects())
    gc.freeze()
    try:
        with gc_paused():
            pass
        assert not any(it is kept for it in gc.get_objects())  # frozen objects are not listed
    finally:
        gc.unfreeze()
