"""Which model is meant where none is named: the same in Python and on the command line."""

from __future__ import annotations

from unspool.models.load.packages import is_installed

FIRST_CHOICE = "smollm2"
SECOND_CHOICE = "bible"
"""It comes with this package, so that there is always a model."""


def default_model() -> str:
    """The first choice where it is installed, else the second."""
    return FIRST_CHOICE if is_installed(FIRST_CHOICE) else SECOND_CHOICE
