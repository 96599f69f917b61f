"""A model that is whole, and that our own classes cannot be: another program may run it."""

from __future__ import annotations


class UnsupportedModelError(ValueError):
    """Of a family, or with an option, that there is no class for here."""
