"""Models by name, for the verbs that need one that says text, or one that chooses labels."""

from __future__ import annotations

import argparse
from typing import Any


def load_speaker(args: argparse.Namespace) -> Any:
    """The model that --model or MODEL names, if it says text."""
    import unspool as us
    from unspool.protocols import Labelling

    model = us.load(args.model, device=args.device)
    if isinstance(model, Labelling):
        raise ValueError(
            f"{args.model} is a {type(model).__name__.lower()}: it chooses labels and says no text. "
            f'unspool predict --model {args.model} "…" asks it'
        )
    return model


def load_labeller(args: argparse.Namespace) -> Any:
    """The model that --model names, if it chooses labels."""
    import unspool as us
    from unspool.protocols import Labelling

    model = us.load(args.model, device=args.device)
    if not isinstance(model, Labelling):
        raise ValueError(
            f"{args.model} says text and chooses no labels: predict needs a classifier or a tagger, as "
            f'unspool train makes them. unspool generate --model {args.model} "…" asks it'
        )
    return model
