"""A recipe: everything that decides a run, as one TOML file.

    seed = 1
    [data]       kind = "lines",  train = "stories.txt",  valid_share = 0.02
    [text]       kind = "bpe",  vocab_size = 8000               not where the data bring their own
    [batches]    kind = "bucketed",  tokens = 2048
    [model]      kind = "transformer_lm",  width = 256, …       vocab_size is the text's
                 from = "smollm2"                               or a model that exists, with its text
    [objective]  kind = "cross_entropy",  smoothing = 0.1
    [schedule]   kind = "inverse_sqrt",  warmup = 400
    [train]      updates = 10000, …
    [[auxiliary]]  kind = "attention_focus",  weight = 0.1      any number of them, beside the objective
    [[hooks]]    kind = "kerbs_reallocate",  every = 50         any number of them; none is needed

Every key is checked before anything is read: an unknown one fails with the nearest that is known.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from unspool.config import build, choose, to_dict, to_kind_dict, unknown
from unspool.data import BATCHES, DATA, Bucketed, OwnText
from unspool.data.bucketing import bpe_dropout_rates
from unspool.io import read_bounded
from unspool.models import MODELS, configured
from unspool.objectives import OBJECTIVES, CrossEntropy, Share, WeightedSum
from unspool.objectives.expected_reward import Rewarded
from unspool.objectives.rewards import REWARDS
from unspool.plugins import check_trust
from unspool.tokenization import TOKENIZER_CONFIGS, Separate
from unspool.training.hooks import HOOKS
from unspool.training.optim import SCHEDULES, InverseSqrt, Schedule
from unspool.training.pretrained import Pretrained
from unspool.training.settings import MEASURES, TrainSettings

SECTIONS = (
    "seed",
    "data",
    "text",
    "batches",
    "model",
    "objective",
    "auxiliary",
    "schedule",
    "train",
    "hooks",
)
_NEEDED = ("data", "model", "train")
_ANY_SIZE = 1 << 20
"""Stands for a vocabulary that is not learnt yet, so that all else about a model is checked before."""
_ANY_LABELS = ("one", "other")
_INSTEAD = {"train.updates": "epochs", "train.epochs": "updates"}
"""Two ways to say one thing: a change of the one takes the place of the other."""


@dataclass(frozen=True)
class Recipe:
    """The parts of a run, checked."""

    settings: Mapping[str, Any]
    """What it was made from: what recipe.toml in the run folder says."""
    data: Any
    text: Any
    model: Mapping[str, Any]
    """The model's table; `shape` makes the model's own settings of it."""
    train: TrainSettings
    batches: Any = field(default_factory=Bucketed)
    objective: Any = field(default_factory=CrossEntropy)
    schedule: Schedule = field(default_factory=InverseSqrt)
    hooks: tuple[Any, ...] = ()
    seed: int = 0
    pretrained: Pretrained | None = None
    """The model that it begins with, where there is one."""
    auxiliary: tuple[tuple[Any, Share], ...] = ()
    """Objectives beside the main one, and how much each of them counts."""

    @property
    def minimised(self) -> Any:
        """The objective with all that stands beside it."""
        return WeightedSum(self.objective, self.auxiliary) if self.auxiliary else self.objective

    def shape(self, vocab_size: int, labels: Sequence[str] = (), source_vocab_size: int | None = None) -> Any:
        """The model's settings, once it is known how many tokens and which labels there are.

        `source_vocab_size` counts the tokens of sources that have a vocabulary of their own.
        """
        table = dict(self.model)
        if table.setdefault("vocab_size", vocab_size) < vocab_size:
            raise ValueError(
                f"model.vocab_size={table['vocab_size']} is too small for the {vocab_size} tokens of the "
                "text: leave it out, and it is the text's"
            )
        if source_vocab_size is not None:
            _give_sources(table, source_vocab_size)
        if labels and _has_setting(table, "labels"):
            table.setdefault("labels", list(labels))
        elif labels:
            raise ValueError(
                f"the data has labels, but model.kind={table.get('kind')!r} has no use for them: choose "
                '"classifier" or "tagger"'
            )
        return configured(table, "model")

    def check_trust(self) -> None:
        """Refuse a recipe whose run would call Python functions that the user does not trust."""
        for objective in (self.objective, *(it for it, _ in self.auxiliary)):
            if isinstance(objective, Rewarded) and objective.reward not in REWARDS:
                check_trust(objective.reward, "reward =")
        if self.train.measure not in MEASURES:
            check_trust(self.train.measure, "train.measure =")

    def said(self) -> Mapping[str, Any]:
        """The settings that make this very recipe: those it was made from, unless a part was replaced."""
        with suppress(ValueError):
            if parse_recipe(self.settings) == self:
                return self.settings
        kinds: dict[str, Mapping[str, type[Any]]] = {
            **{"data": DATA, "text": TOKENIZER_CONFIGS, "batches": BATCHES},
            **{"objective": OBJECTIVES, "schedule": SCHEDULES},
        }
        parts = {name: getattr(self, name) for name in kinds}
        found = {name: to_kind_dict(kinds[name], part) for name, part in parts.items() if part is not None}
        lists = {
            "auxiliary": [{**to_kind_dict(OBJECTIVES, it), **to_dict(share)} for it, share in self.auxiliary],
            "hooks": [to_kind_dict(HOOKS, hook) for hook in self.hooks],
        }
        return {"seed": self.seed, **found, "model": self.model, "train": to_dict(self.train), **lists}


def read_recipe(path: str | Path, changes: Sequence[str] = ()) -> Recipe:
    """The recipe in a TOML file, with changes such as "train.lr=0.01"."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no recipe {str(path)!r}: give the path of a TOML file")
    content = read_bounded(path)
    try:
        settings = tomllib.loads(content.decode())
        return parse_recipe(apply_changes(settings, changes))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no TOML: {error}") from error
    except RecursionError:
        raise ValueError(f"{path} is no recipe: its tables are nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def parse_recipe(settings: Mapping[str, Any]) -> Recipe:
    """The recipe that a mapping says."""
    for key, value in settings.items():
        if key not in SECTIONS:
            raise ValueError(unknown(str(key), SECTIONS, "section of a recipe"))
        expected = {"seed": int, "hooks": list, "auxiliary": list}.get(key, Mapping)
        if not isinstance(value, expected) or isinstance(value, bool):
            raise ValueError(f"{key} is {value!r:.40}, but must be {_WORDS[expected]}")
    for key in _NEEDED:
        if key not in settings:
            raise ValueError(f"the recipe lacks the section [{key}]")
    data = choose(DATA, settings["data"], "data")
    pretrained = _pretrained(settings)
    if "text" not in settings and pretrained is None and not isinstance(data, OwnText):
        raise ValueError("the recipe lacks the section [text]: its data bring no vocabulary of their own")
    recipe = Recipe(
        settings,
        data,
        choose(TOKENIZER_CONFIGS, settings["text"], "text") if "text" in settings else None,
        settings["model"],
        build(TrainSettings, settings["train"], "train"),
        choose(BATCHES, {"kind": "bucketed", **settings.get("batches", {})}, "batches"),
        choose(OBJECTIVES, {"kind": "cross_entropy", **settings.get("objective", {})}, "objective"),
        choose(SCHEDULES, {"kind": "inverse_sqrt", **settings.get("schedule", {})}, "schedule"),
        tuple(choose(HOOKS, table, f"hooks.{at}") for at, table in enumerate(settings.get("hooks", ()))),
        settings.get("seed", 0),
        pretrained,
        tuple(
            _parse_auxiliary(table, f"auxiliary.{at}")
            for at, table in enumerate(settings.get("auxiliary", ()))
        ),
    )
    for hook in recipe.hooks:
        hook.check(recipe.train)
    if recipe.train.shard:
        _check_shard(recipe)
    if not isinstance(recipe.batches, Bucketed) and bpe_dropout_rates(recipe.text):
        raise ValueError(
            'text.dropout changes how many tokens a text has: set batches.kind = "bucketed", whose rows are '
            "whole texts"
        )
    if pretrained is not None:
        pretrained.check(recipe.train)
        return recipe
    # Labels, like the vocabulary, are known once the data is read.
    recipe.shape(
        recipe.model.get("vocab_size", _ANY_SIZE),
        _ANY_LABELS if _has_setting(recipe.model, "labels") else (),
        recipe.model.get("source_vocab_size", _ANY_SIZE) if isinstance(recipe.text, Separate) else None,
    )
    return recipe


def _check_shard(recipe: Recipe) -> None:
    """Refuse what needs whole weights outside of the one pass that all processes make at the same time."""
    for objective in (recipe.objective, *(it for it, _ in recipe.auxiliary)):
        kind = to_kind_dict(OBJECTIVES, objective)["kind"]
        if objective.own_batches:
            raise ValueError(
                f"train.shard does not work with {kind}, which has the model read rows of its own: set "
                "train.shard to false"
            )
        if objective.watches:
            raise ValueError(
                f"train.shard does not work with losses on attention ({kind}): set train.shard to false"
            )
    if recipe.train.measure != "loss":
        raise ValueError(
            f'train.shard does not work with train.measure = "{recipe.train.measure}", for which one process '
            'generates: set train.shard to false, or train.measure to "loss"'
        )


def with_absolute_paths(recipe: Recipe) -> Recipe:
    """The same recipe with the whole path of every file: it leads there from any folder."""
    found: dict[str, str | list[str]] = {}
    for name, paths in recipe.data.files().items():
        whole = [str(Path(path).absolute()) for path in paths]
        match getattr(recipe.data, name):
            case str() as path if (path,) == paths:
                found[name] = whole[0]
            case tuple():
                found[name] = whole
            case _:  # a file inside of a package is found by other means
                pass
    begins = {} if recipe.pretrained is None else recipe.pretrained.located()
    said, placed = recipe.settings, dict(recipe.settings)
    placed |= {"data": {**said["data"], **found}, "model": {**said["model"], **begins}}
    if "objective" in said:
        placed["objective"] = {**said["objective"], **_absolute_paths(recipe.objective)}
    if "auxiliary" in said:
        beside = zip(said["auxiliary"], recipe.auxiliary, strict=True)
        placed["auxiliary"] = [{**table, **_absolute_paths(objective)} for table, (objective, _) in beside]
    return recipe if placed == said else parse_recipe(placed)


def _absolute_paths(objective: Any) -> dict[str, str]:
    """The whole paths of what an objective reads from the disk; a model may have another name than a path."""
    paths = {name: Path(path).expanduser() for name, path in objective.files().items()}
    return {name: str(path.absolute()) for name, path in paths.items() if path.exists()}


def apply_changes(settings: Mapping[str, Any], changes: Sequence[str]) -> dict[str, Any]:
    """The settings with values replaced: "a.b=c", where c is read as TOML, or else as a word."""
    result: dict[str, Any] = _deep_copy(settings)
    named = {change.partition("=")[0].strip() for change in changes}
    for change in changes:
        name, equals, said = change.partition("=")
        keys = name.strip().split(".")
        if not equals or not all(keys):
            raise ValueError(f"--set {change!r} has no value: write it as section.key=value")
        table = result
        for key in keys[:-1]:
            table = table.setdefault(key, {})
            if not isinstance(table, dict):
                raise ValueError(f"--set {change!r}: {key} is a value, not a table")
        table[keys[-1]] = _parse_value(said.strip())
        other = _INSTEAD.get(".".join(keys))
        if other is not None and f"train.{other}" not in named:
            table.pop(other, None)
    return result


def _parse_auxiliary(table: Mapping[str, Any], where: str) -> tuple[Any, Share]:
    """An objective beside the main one, and how much it counts."""
    names = {it.name for it in fields(Share)}
    share = build(Share, {key: it for key, it in table.items() if key in names}, where)
    return choose(OBJECTIVES, {key: it for key, it in table.items() if key not in names}, where), share


def _pretrained(settings: Mapping[str, Any]) -> Pretrained | None:
    """The model to begin with, which brings its own vocabulary."""
    table = settings["model"]
    if "from" not in table:
        return None
    if "kind" in table:
        raise ValueError(
            f"model.from = {table['from']!r} has its own shape, and model.kind = {table['kind']!r} says "
            "another: leave one of them out"
        )
    if "text" in settings:
        raise ValueError(
            f"model.from = {table['from']!r} brings its own vocabulary, and reads it in its own order: leave "
            'out [text], or train a model from its beginning ([model] kind = "transformer_lm", …)'
        )
    return build(Pretrained, table, "model")


def _has_setting(table: Mapping[str, Any], name: str) -> bool:
    """Whether the kind of model has this setting."""
    kind = MODELS.get(table.get("kind", ""))
    return kind is not None and name in {it.name for it in fields(kind)}


def _give_sources(table: dict[str, Any], vocab_size: int) -> None:
    if not _has_setting(table, "source_vocab_size"):
        raise ValueError(
            f'text.kind = "separate", but model.kind={table.get("kind")!r} reads no sources: choose an '
            "encoder–decoder, or another kind of text"
        )
    if table.setdefault("source_vocab_size", vocab_size) < vocab_size:
        raise ValueError(
            f"model.source_vocab_size={table['source_vocab_size']} is too small for the {vocab_size} tokens "
            "of the sources: leave it out, and it is theirs"
        )


def _parse_value(said: str) -> Any:
    try:
        return tomllib.loads(f"value = {said}")["value"]
    except tomllib.TOMLDecodeError:
        return said  # a word needs no quotes
    except RecursionError:
        raise ValueError(f"--set: {said[:40]}… is nested too deeply") from None


def _deep_copy(it: Any) -> Any:
    return {key: _deep_copy(value) for key, value in it.items()} if isinstance(it, Mapping) else it


_WORDS: dict[Any, str] = {
    int: "a whole number",
    list: "a list of tables, each under its name in double brackets",
    Mapping: "a table",
}
