"""What may change when a run is resumed: its folder must go on telling how the model came about.

[train], [schedule], [objective], [[auxiliary]], dropout and the settings of hooks may: each change is said,
and recipe.toml keeps it ("# after update 200: train.lr was 0.01, is 0.002"). What has shaped the weights, the
vocabulary or the place in the data may not, and is refused before anything is written. Files may move and be
renamed, but must hold what they held.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from unspool.config import kind_name, to_dict
from unspool.data import BATCHES, DATA
from unspool.data.encoded_store import FileHashes
from unspool.models import MODELS, PARTS
from unspool.objectives import OBJECTIVES
from unspool.tokenization import TOKENIZER_CONFIGS
from unspool.training.hooks import HOOKS
from unspool.training.optim import SCHEDULES
from unspool.training.recipe import Recipe

FREE = ("train", "schedule", "objective", "auxiliary", "hooks")
"""Sections whose settings may change; of the others, dropout may."""
FIXED = ("train.accumulate", "train.measure", "hooks.kinds")
"""What counts the batches that have been read, what the best validation was the best by, and what a
checkpoint's memory is divided among."""


@dataclass(frozen=True)
class Change:
    """One setting, as it was and as it is."""

    name: str
    before: Any
    now: Any

    def __str__(self) -> str:
        return f"{self.name} was {_format_value(self.before)}, is {_format_value(self.now)}"

    @property
    def allowed(self) -> bool:
        """Whether a run can go on with it."""
        section, _, key = self.name.partition(".")
        return self.name not in FIXED and (section in FREE or key.rpartition(".")[2] == "dropout")


def flatten_settings(recipe: Recipe, shape: Any) -> dict[str, Any]:
    """Every setting by its whole name, those that were left out included: {"train.lr": 0.001, …}."""
    found: dict[str, Any] = {"seed": recipe.seed}
    sections: dict[str, tuple[Any, Mapping[str, type[Any]]]] = {
        "data": (recipe.data, DATA),
        "text": (recipe.text, TOKENIZER_CONFIGS),
        "batches": (recipe.batches, BATCHES),
        "model": (shape, MODELS),
        "objective": (recipe.objective, OBJECTIVES),
        "schedule": (recipe.schedule, SCHEDULES),
        "train": (recipe.train, {}),
    }
    for name, (part, kinds) in sections.items():
        found |= _flat(name, part, kinds)
    for at, (objective, share) in enumerate(recipe.auxiliary):
        found |= _flat(f"auxiliary.{at}", objective, OBJECTIVES) | _flat(f"auxiliary.{at}", share, {})
    if recipe.pretrained is not None:
        found |= {f"model.{name}": it for name, it in to_dict(recipe.pretrained).items() if name != "lora"}
        found |= _flat("model.lora", recipe.pretrained.lora, {})
    found["hooks.kinds"] = [_kind(hook, HOOKS) for hook in recipe.hooks]
    for at, hook in enumerate(recipe.hooks):
        found |= _flat(f"hooks.{at}", hook, {})
    return found


def find_changes(before: Mapping[str, Any], now: Mapping[str, Any], data: Any) -> list[Change]:
    """What is not as it was; files count by what they hold, which `check_files` looks at.

    A setting that the older version of a run's beginning did not know is no change.
    """
    files = {f"data.{name}" for name in data.files()}
    found = {name: Change(name, it, now.get(name)) for name, it in before.items() if it != now.get(name)}
    return [
        change
        for name, change in found.items()
        # Where the kind is another one, all else is, too.
        if name not in files and (name.endswith(".kind") or f"{name.rpartition('.')[0]}.kind" not in found)
    ]


def check_settings(path: Path, found: Sequence[Change]) -> None:
    """Refuse changes that would make the folder lie."""
    refused = [it for it in found if not it.allowed]
    if refused:
        raise ValueError(
            f"{path}: what has decided the run so far cannot change any more: "
            f"{'; '.join(map(str, refused))}. Set it back, or begin a new run with another --output"
        )


def check_files(path: Path, before: FileHashes, now: FileHashes, data: Any) -> None:
    """Refuse files that hold something else than they held, by what `fingerprint.of_files` says of them."""
    for name in sorted({*before, *now}):
        if before.get(name) == now.get(name):
            continue
        where = f"data.{name} = {getattr(data, name)!r}"
        what = (
            "which the run had when it began, is missing now"
            if name not in now
            else "which the run did not have when it began"
            if name not in before
            else "does not hold what it held when the run began"
        )
        raise ValueError(
            f"{path}: {where} {what}: bring the old data back, or begin a new run with another --output"
        )


def check_length(path: Path, updates: int, done: int) -> None:
    """Refuse to end a run before where it is."""
    if updates < done:
        raise ValueError(
            f"{path}: the run has done {done} updates, and is to have {updates} in all: give it at least as "
            "many (train.updates, train.epochs), or begin a new run with another --output"
        )


def _flat(name: str, part: Any, kinds: Mapping[str, type[Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {f"{name}.kind": _kind(part, kinds)} if kinds else {}
    if part is None:
        return found
    said = to_dict(part)
    for it in fields(part):
        if name == "model" and it.name in PARTS:
            found |= _flat(f"{name}.{it.name}", getattr(part, it.name), PARTS[it.name])
        elif it.init:
            found[f"{name}.{it.name}"] = said.get(it.name)
    return found


def _kind(part: Any, kinds: Mapping[str, type[Any]]) -> str | None:
    return None if part is None else kind_name(kinds, type(part))


def _format_value(value: Any) -> str:
    return "not given" if value is None else repr(value)
