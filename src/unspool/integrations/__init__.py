"""Integrations with other libraries; each needs its optional dependency (`pip install 'unspool[extra]'`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unspool.lazy import lazy_exports

if TYPE_CHECKING:
    from unspool.integrations.ray.dataset import generate_dataset as generate_dataset

__all__, __getattr__, __dir__ = lazy_exports(__name__)
