"""Bridges to other libraries. Each needs its own extra and reports if that is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unspool.lazy import lazy_exports

if TYPE_CHECKING:
    from unspool.integrations.ray.dataset import generate_dataset as generate_dataset

__all__, __getattr__, __dir__ = lazy_exports(__name__)
