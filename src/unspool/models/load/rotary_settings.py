"""Rotary positions as in configurations of Hugging Face's; transformers 5 keeps all in rope_parameters."""

from __future__ import annotations

import math
from typing import Any

from unspool.models.load.settings import Settings
from unspool.models.load.unsupported import UnsupportedModelError
from unspool.nn.positions import RotaryScaling, YarnScaling

KINDS = ("default", "linear", "llama3", "yarn")


def rotary_settings(settings: Settings, head_width: int, group: Settings | None = None) -> dict[str, Any]:
    """The rotary fields of a TransformerConfig; `group` is the table, where a model has several."""
    if group is None:
        group = settings.group("rope_parameters" if settings.has("rope_parameters") else "rope_scaling")
    found: dict[str, Any] = {
        "rotary_base": group.number("rope_theta", settings.number("rope_theta", 10000.0)),
    }
    share = group.number("partial_rotary_factor", settings.number("partial_rotary_factor", 1.0))
    if share != 1.0:
        found["rotary_width"] = int(head_width * share)
    kind = group.word("rope_type", group.word("type", "default"))
    if kind not in KINDS:
        raise UnsupportedModelError(
            f"{settings.source}: rotary scaling {kind!r:.40} is unknown; known are {', '.join(KINDS)}"
        )
    context = settings.integer("max_position_embeddings", 2048)
    if kind == "linear":
        found["rotary_factor"] = group.number("factor")
    if kind == "llama3":
        found["rotary_scaling"] = RotaryScaling(
            factor=group.number("factor"),
            low_freq_factor=group.number("low_freq_factor"),
            high_freq_factor=group.number("high_freq_factor"),
            original_context=group.integer("original_max_position_embeddings", context),
        )
    if kind == "yarn":
        found["rotary_yarn"] = _yarn(group, context)
    return found


def _yarn(group: Settings, context: int) -> YarnScaling:
    original = group.integer("original_max_position_embeddings", context)
    factor = group.number("factor", context / original)
    magnitude = group.number("attention_factor") if group.has("attention_factor") else None
    if magnitude is None and group.has("mscale") and group.has("mscale_all_dim"):
        magnitude = _grown(factor, group.number("mscale")) / _grown(factor, group.number("mscale_all_dim"))
    return YarnScaling(
        factor,
        original,
        group.number("beta_fast", 32.0),
        group.number("beta_slow", 1.0),
        magnitude,
        group.flag("truncate", True),
    )


def _grown(factor: float, share: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * share * math.log(factor) + 1.0
