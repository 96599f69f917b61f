"""Which model is meant where none is named: the same in Python and on the command line."""

from __future__ import annotations

from unspool import defaults
from unspool.models.load.packages import is_installed


def default_model() -> str:
    """The first choice where it is installed, else the second."""
    return defaults.MODEL if is_installed(defaults.MODEL) else defaults.SECOND_MODEL
