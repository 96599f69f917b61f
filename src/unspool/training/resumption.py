"""Which settings changed when a run is resumed, and which of them may.

A section of a recipe may change if `SECTIONS` says so; in the others only dropout may. Each change is
reported and kept in recipe.toml: "# after update 200: train.lr was 0.01, is 0.002". Settings that shaped the
weights, the vocabulary or the position in the data cannot change (`recipe_checks`). Files may be moved and
renamed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from unspool.config import kind_name, to_dict
from unspool.models import CONFIG_PARTS
from unspool.training.recipe import SECTIONS, Recipe

CHANGEABLE = frozenset(section.name for section in SECTIONS if section.may_change)
FIXED = ("train.accumulate", "train.measure", "hooks.kinds")
"""Fixed settings of changeable sections: they define the batches read so far, the best validation, and the
layout of a checkpoint."""


@dataclass(frozen=True)
class Change:
    """One setting before and after."""

    name: str
    before: Any
    now: Any

    def __str__(self) -> str:
        before, now = ("not given" if it is None else repr(it) for it in (self.before, self.now))
        return f"{self.name} was {before}, is {now}"

    @property
    def allowed(self) -> bool:
        """True if the run can continue with it."""
        section, _, key = self.name.partition(".")
        return self.name not in FIXED and (section in CHANGEABLE or key.rpartition(".")[2] == "dropout")


def flatten_settings(recipe: Recipe, model_config: Any) -> dict[str, Any]:
    """Return every setting by its full name, defaults included: {"train.lr": 0.001, …}."""
    flat: dict[str, Any] = {"seed": recipe.seed}
    for section in SECTIONS:
        if not section.is_list and section.name != "seed":
            part = model_config if section.name == "model" else getattr(recipe, section.name)
            flat |= _flatten(section.name, part, section.choices)
    for at, (objective, share) in enumerate(recipe.auxiliary):
        name = f"auxiliary.{at}"
        flat |= _flatten(name, objective, _choices("auxiliary")) | _flatten(name, share, None)
    if recipe.pretrained is not None:
        flat |= {f"model.{name}": it for name, it in to_dict(recipe.pretrained).items() if name != "lora"}
        flat |= _flatten("model.lora", recipe.pretrained.lora, None)
    flat["hooks.kinds"] = [kind_name(_choices("hooks"), type(hook)) for hook in recipe.hooks]
    for at, hook in enumerate(recipe.hooks):
        flat |= _flatten(f"hooks.{at}", hook, None)
    return flat


def find_changes(before: Mapping[str, Any], now: Mapping[str, Any], data: Any) -> list[Change]:
    """Return the settings that differ. Files are compared by content elsewhere.

    A setting that did not exist when the run began is not a change. If a kind changed, only it is named.
    """
    files = {f"data.{name}" for name in data.files()}
    changes = {name: Change(name, it, now.get(name)) for name, it in before.items() if it != now.get(name)}
    return [
        change
        for name, change in changes.items()
        if name not in files and (name.endswith(".kind") or f"{name.rpartition('.')[0]}.kind" not in changes)
    ]


def _choices(section: str) -> Any:
    return next(it.choices for it in SECTIONS if it.name == section)


def _flatten(name: str, part: Any, choices: Any) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    if isinstance(choices, Mapping):
        flat[f"{name}.kind"] = None if part is None else kind_name(choices, type(part))
    if part is None:
        return flat
    values = to_dict(part)
    for it in fields(part):
        if name == "model" and it.name in CONFIG_PARTS:
            flat |= _flatten(f"{name}.{it.name}", getattr(part, it.name), CONFIG_PARTS[it.name])
        elif it.init:
            flat[f"{name}.{it.name}"] = values.get(it.name)
    return flat
