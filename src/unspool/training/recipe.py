"""Recipe: all settings of a training run, as one TOML file; and which of them may change when it is resumed.

    seed = 1
    [data]       kind = "lines",  train = "stories.txt",  valid_share = 0.02
    [tokenizer]  kind = "bpe",  vocab_size = 8000               unless the data brings a vocabulary
    [batches]    kind = "bucketed",  tokens = 2048
    [model]      kind = "transformer_lm",  width = 256, …       vocab_size is taken from [tokenizer]
                 from = "smollm2"                               or a pretrained model with its vocabulary
    [objective]  kind = "cross_entropy",  smoothing = 0.1
    [schedule]   kind = "inverse_sqrt",  warmup = 400
    [train]      updates = 10000, …
    [[auxiliary]]  kind = "attention_focus",  weight = 0.1      any number of further objectives
    [[hooks]]    kind = "kerbs_reallocate",  every = 50         any number of hooks

`SECTIONS` lists them with their kinds and defaults. Every key is checked before any file is read: an unknown
key is refused with the nearest known ones, and `recipe_checks` refuses contradictions.

In a resumed run, a section may change if `SECTIONS` says so; in the others only dropout may. Each change is
reported and kept in recipe.toml: "# after update 200: train.lr was 0.01, is 0.002". Settings that shaped the
weights, the vocabulary or the position in the data cannot change (`recipe_checks`). Files may be moved and
renamed.
"""

from __future__ import annotations

import copy
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from unspool.config import build, choose, kind_name, to_dict, unknown
from unspool.data import BATCHES, DATA, Bucketed
from unspool.data.examples import bos_and_eos
from unspool.io import read_bounded
from unspool.models import CONFIG_PARTS, MODELS, config_from_dict
from unspool.models.loading.lora_file import fingerprint
from unspool.models.loading.model_names import load
from unspool.models.loading.run_folder import load_folder
from unspool.models.lora import LoRA, add_adapters
from unspool.objectives import OBJECTIVES, AuxiliarySettings, CrossEntropy, WeightedSum
from unspool.objectives.expected_reward import REWARDS, RewardObjective
from unspool.plugins import check_trust
from unspool.tokenization import TOKENIZER_CONFIGS, Separate, Tokenizer
from unspool.training.hooks import HOOKS
from unspool.training.optim import SCHEDULES, InverseSqrt, Schedule
from unspool.training.recipe_checks import check_recipe
from unspool.training.run_folder import Checkpoint
from unspool.training.settings import MEASURES, TrainSettings


@dataclass(frozen=True)
class Pretrained:
    """The pretrained model of a run, `[model] from = "smollm2"`, and which of its weights are trained.

        [model]
        from = "smollm2"                            any name that us.load accepts
        lora = {rank = 8, alpha = 16.0}             train only adapters; without it, all weights
        frozen = ["embed", "blocks.0"]              or all weights except these

    The model keeps its vocabulary and its chat template. Every checkpoint holds a complete model with merged
    adapters, and the adapters separately: a resumed run continues from these, bit for bit.
    """

    from_: str
    """Its name or path, as for `us.load`; its vocabulary replaces [tokenizer]."""
    lora: LoRA | None = None
    """Adapters (rank, alpha, targets, dropout); if given, only they are trained."""
    frozen: tuple[str, ...] = ()
    """Parts that are not trained, by prefixes of their names: "embed", "blocks.0"."""

    def load_model(self, checkpoint: Checkpoint | None) -> Any:
        """Load the model before the first update, or one that can hold the weights of a checkpoint."""
        # The base weights of adapters are not in the checkpoint.
        from_base = checkpoint is None or self.lora is not None
        model: Any = load(self.from_, weights="float32") if from_base else load_folder(checkpoint.path)  # type: ignore[union-attr]
        if not isinstance(model.tokenizer, Tokenizer):
            raise ValueError(f"model.from = {self.from_!r} has no tokenizer: choose a model with one")
        if model.is_encoder_decoder:
            start, bos = model.ends.bos, bos_and_eos(model.tokenizer)[0]
            if start != bos or model.source_ends.source_bos:
                raise ValueError(
                    f"model.from = {self.from_!r} starts its outputs with token {start}"
                    + (" and its sources with a BOS" if model.source_ends.source_bos else "")
                    + f", but training data starts targets with BOS {bos}: such models (BART, "
                    "Marian, T5) cannot be trained"
                )
        return model

    def freeze(self, model: Any) -> str | None:
        """Add adapters or freeze parts; return the fingerprint of the adapters' base weights."""
        if self.lora is not None:
            base = fingerprint(model)
            add_adapters(model, self.lora)
            return base
        for name in self.frozen:
            parts = [weight for key, weight in model.named_parameters() if f"{key}.".startswith(f"{name}.")]
            if not parts:
                known = sorted({key.partition(".")[0] for key, _ in model.named_parameters()})
                raise ValueError(f"model.frozen names {name!r}, but the model's parts are {', '.join(known)}")
            for weight in parts:
                weight.requires_grad_(False)
        return None


@dataclass(frozen=True)
class Section:
    """One section of a recipe."""

    name: str
    choices: Any
    """Kind → dataclass; or the type, if there is only one."""
    default: str | None = None
    """The kind if the recipe does not name one."""
    is_required: bool = False
    is_list: bool = False
    """Whether it may occur several times, in double brackets."""
    may_change: bool = False
    """Whether a resumed run may change it."""


SECTIONS = (
    Section("seed", int),
    Section("data", DATA, is_required=True),
    Section("tokenizer", TOKENIZER_CONFIGS),
    Section("batches", BATCHES, default="bucketed"),
    Section("model", MODELS, is_required=True),
    Section("objective", OBJECTIVES, default="cross_entropy", may_change=True),
    Section("auxiliary", OBJECTIVES, is_list=True, may_change=True),
    Section("schedule", SCHEDULES, default="inverse_sqrt", may_change=True),
    Section("train", TrainSettings, is_required=True, may_change=True),
    Section("hooks", HOOKS, is_list=True, may_change=True),
)
_ANY_VOCAB_SIZE = 1 << 20
_ANY_LABELS = ("one", "other")
"""Placeholders that check a model's other settings before the data is read."""
_REPLACES = {"train.updates": "epochs", "train.epochs": "updates"}
"""Two settings for the length of a run: changing one removes the other."""


@dataclass(frozen=True)
class Recipe:
    """A checked recipe."""

    settings: Mapping[str, Any]
    """The settings it was parsed from; recipe.toml in the run folder holds them."""
    data: Any
    tokenizer: Any
    model: Mapping[str, Any]
    """The table [model]; `model_config` turns it into the model's settings."""
    train: TrainSettings
    batches: Any = field(default_factory=Bucketed)
    objective: Any = field(default_factory=CrossEntropy)
    schedule: Schedule = field(default_factory=InverseSqrt)
    hooks: tuple[Any, ...] = ()
    seed: int = 0
    pretrained: Pretrained | None = None
    """The model to start from, if any."""
    auxiliary: tuple[tuple[Any, AuxiliarySettings], ...] = ()
    """Further objectives and their weights."""

    @property
    def objectives(self) -> tuple[Any, ...]:
        """The main objective and the auxiliary ones."""
        return (self.objective, *(objective for objective, _ in self.auxiliary))

    @property
    def total_objective(self) -> Any:
        return WeightedSum(self.objective, self.auxiliary) if self.auxiliary else self.objective

    def model_config(
        self, vocab_size: int, labels: Sequence[str] = (), source_vocab_size: int | None = None
    ) -> Any:
        """Return the model's settings, given the vocabulary size and the labels of the data.

        `source_vocab_size` is the size of a separate source vocabulary.
        """
        table = dict(self.model)
        _set_size(table, "vocab_size", vocab_size, "the tokenizer")
        if source_vocab_size is not None:
            if not _has_setting(table, "source_vocab_size"):
                raise ValueError(
                    'tokenizer.kind = "separate" needs an encoder–decoder, but model.kind is '
                    f"{table.get('kind')!r}: choose another kind of tokenizer or model"
                )
            _set_size(table, "source_vocab_size", source_vocab_size, "the sources")
        if labels and _has_setting(table, "labels"):
            table.setdefault("labels", list(labels))
        elif labels:
            raise ValueError(
                f"the data has labels, but model.kind={table.get('kind')!r} does not use them: choose "
                '"classifier" or "tagger"'
            )
        return config_from_dict(table, "model")

    def check_trust(self) -> None:
        """Refuse a recipe whose run would call Python functions that the user does not trust."""
        for objective in self.objectives:
            if isinstance(objective, RewardObjective) and objective.reward not in REWARDS:
                check_trust(objective.reward, "reward =")
        if self.train.measure not in MEASURES:
            check_trust(self.train.measure, "train.measure =")


def read_recipe(path: str | Path, changes: Sequence[str] = ()) -> Recipe:
    """Read a recipe from a TOML file, with changes such as "train.lr=0.01"."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"recipe {str(path)!r} does not exist: give the path of a TOML file")
    content = read_bounded(path)
    try:
        settings = tomllib.loads(content.decode())
        return parse_recipe(apply_changes(settings, changes))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from error
    except RecursionError:
        raise ValueError(f"{path} is not a recipe: its tables are nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


AnyRecipe = str | Path | Mapping[str, Any] | Recipe
"""A TOML file, a mapping, or a Recipe."""


def as_recipe(recipe: AnyRecipe, changes: Sequence[str] = ()) -> Recipe:
    """Return the recipe with absolute paths; refuse it if it names code that the user does not trust."""
    if not isinstance(changes, list | tuple) or not all(isinstance(change, str) for change in changes):
        raise TypeError(
            f'changes is {changes!r:.80}, but must be a list of strings such as ["train.updates=200"]'
        )
    match recipe:
        case str() | os.PathLike():
            parsed = read_recipe(recipe, changes)
        case Recipe() | Mapping():
            settings = recipe.settings if isinstance(recipe, Recipe) else recipe
            if isinstance(recipe, Recipe) and parse_recipe(settings) != recipe:
                raise ValueError("a part of the recipe was replaced: give such settings as `changes`")
            parsed = parse_recipe(apply_changes(settings, changes))
        case _:
            raise TypeError(
                f"the recipe is {recipe!r:.80}, but must be the path of a TOML file, a mapping or a Recipe"
            )
    parsed = with_absolute_paths(parsed)
    parsed.check_trust()
    return parsed


def parse_recipe(settings: Mapping[str, Any]) -> Recipe:
    names = [section.name for section in SECTIONS]
    for key in settings:
        if key not in names:
            raise ValueError(unknown(str(key), names, "section of a recipe"))
    parts = {section.name: _parse_section(section, settings) for section in SECTIONS}
    model = parts["model"]
    pretrained = None
    if "from" in model:
        pretrained = build(Pretrained, {key: value for key, value in model.items() if key != "kind"}, "model")
    recipe = Recipe(settings, pretrained=pretrained, **parts)
    check_recipe(recipe)
    if pretrained is None:
        recipe.model_config(
            model.get("vocab_size", _ANY_VOCAB_SIZE),
            _ANY_LABELS if _has_setting(model, "labels") else (),
            model.get("source_vocab_size", _ANY_VOCAB_SIZE)
            if isinstance(recipe.tokenizer, Separate)
            else None,
        )
    return recipe


def _parse_section(section: Section, settings: Mapping[str, Any]) -> Any:
    """The part of a recipe that a section describes; the model's stays a table until the data is read."""
    name, value = section.name, settings.get(section.name)
    if value is None and section.is_required:
        raise ValueError(f"the recipe lacks the section [{name}]")
    if name == "seed":
        return _check_type(name, 0 if value is None else value, int, "a whole number")
    if section.is_list:
        expected = "a list of tables, each under its name in double brackets"
        tables = enumerate(_check_type(name, value or [], list, expected))
        if name == "auxiliary":
            return tuple(_parse_auxiliary(table, f"{name}.{at}") for at, table in tables)
        return tuple(choose(section.choices, table, f"{name}.{at}") for at, table in tables)
    if value is None and section.default is None:
        return None
    table = _check_type(name, {} if value is None else value, Mapping, "a table")
    if name == "model":
        return table
    if not isinstance(section.choices, Mapping):
        return build(section.choices, table, name)
    default = {} if section.default is None else {"kind": section.default}
    return choose(section.choices, {**default, **table}, name)


def _check_type(name: str, value: Any, expected: type, description: str) -> Any:
    if not isinstance(value, expected) or isinstance(value, bool):
        raise ValueError(f"{name} is {value!r:.40}, but must be {description}")
    return value


def _parse_auxiliary(table: Mapping[str, Any], where: str) -> tuple[Any, AuxiliarySettings]:
    names = {setting.name for setting in fields(AuxiliarySettings)}
    share = build(AuxiliarySettings, {key: value for key, value in table.items() if key in names}, where)
    return choose(OBJECTIVES, {key: value for key, value in table.items() if key not in names}, where), share


def with_absolute_paths(recipe: Recipe) -> Recipe:
    """Return the recipe with absolute paths, so that it works from any folder."""
    before = recipe.settings
    paths = {name: _absolute(getattr(recipe.data, name)) for name in recipe.data.files()}
    now = {**before, "data": {**before["data"], **paths}}
    if recipe.pretrained is not None:
        now["model"] = {**before["model"], **_existing_paths({"from": recipe.pretrained.from_})}
    if "objective" in before:
        now["objective"] = {**before["objective"], **_existing_paths(recipe.objective.files())}
    if "auxiliary" in before:
        pairs = zip(before["auxiliary"], recipe.auxiliary, strict=True)
        now["auxiliary"] = [
            {**table, **_existing_paths(objective.files())} for table, (objective, _) in pairs
        ]
    return recipe if now == before else parse_recipe(now)


def _absolute(paths: str | Sequence[str]) -> str | list[str]:
    if isinstance(paths, str):
        return str(Path(paths).absolute())
    return [str(Path(path).absolute()) for path in paths]


def _existing_paths(names: Mapping[str, str]) -> dict[str, str]:
    """Absolute paths of files and folders; names of models that are not paths are left out."""
    paths = {key: Path(name).expanduser() for key, name in names.items()}
    return {key: str(path.absolute()) for key, path in paths.items() if path.exists()}


def apply_changes(settings: Mapping[str, Any], changes: Sequence[str]) -> dict[str, Any]:
    """Return the settings with changes such as "train.lr=0.01"; the value is TOML, or else a plain word."""
    result: dict[str, Any] = copy.deepcopy(dict(settings))
    changed = {change.partition("=")[0].strip() for change in changes}
    for change in changes:
        name, equals, value = change.partition("=")
        keys = name.strip().split(".")
        if not equals or not all(keys):
            raise ValueError(f"--set {change!r} is not a change: write section.key=value")
        table = result
        for key in keys[:-1]:
            table = table.setdefault(key, {})
            if not isinstance(table, dict):
                raise ValueError(f"--set {change!r}: {key} is a value, not a table")
        table[keys[-1]] = _parse_value(value.strip())
        other = _REPLACES.get(".".join(keys))
        if other is not None and f"train.{other}" not in changed:
            table.pop(other, None)
    return result


def _parse_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text  # a plain word needs no quotes
    except RecursionError:
        raise ValueError(f"--set: {text[:40]}… is nested too deeply") from None


def _has_setting(table: Mapping[str, Any], name: str) -> bool:
    """True if this kind of model has a setting."""
    kind = MODELS.get(table.get("kind", ""))
    return kind is not None and name in {setting.name for setting in fields(kind)}


def _set_size(table: dict[str, Any], name: str, size: int, texts: str) -> None:
    if table.setdefault(name, size) < size:
        raise ValueError(
            f"model.{name}={table[name]} is too small for the {size} tokens of {texts}: remove it to use "
            "their number"
        )


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
        before, now = ("not given" if value is None else repr(value) for value in (self.before, self.now))
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
        flat |= _flatten(name, objective, OBJECTIVES) | _flatten(name, share, None)
    if recipe.pretrained is not None:
        flat |= {
            f"model.{name}": value for name, value in to_dict(recipe.pretrained).items() if name != "lora"
        }
        flat |= _flatten("model.lora", recipe.pretrained.lora, None)
    flat["hooks.kinds"] = [kind_name(HOOKS, type(hook)) for hook in recipe.hooks]
    for at, hook in enumerate(recipe.hooks):
        flat |= _flatten(f"hooks.{at}", hook, None)
    return flat


def find_changes(before: Mapping[str, Any], now: Mapping[str, Any], data: Any) -> list[Change]:
    """Return the settings that differ. Files are compared by content elsewhere.

    A setting that did not exist when the run began is not a change. If a kind changed, only it is named.
    """
    files = {f"data.{name}" for name in data.files()}
    changes = {
        name: Change(name, value, now.get(name)) for name, value in before.items() if value != now.get(name)
    }
    return [
        change
        for name, change in changes.items()
        if name not in files and (name.endswith(".kind") or f"{name.rpartition('.')[0]}.kind" not in changes)
    ]


def _flatten(name: str, part: Any, choices: Any) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    if isinstance(choices, Mapping):
        flat[f"{name}.kind"] = None if part is None else kind_name(choices, type(part))
    if part is None:
        return flat
    values = to_dict(part)
    for setting in fields(part):
        if name == "model" and setting.name in CONFIG_PARTS:
            flat |= _flatten(
                f"{name}.{setting.name}", getattr(part, setting.name), CONFIG_PARTS[setting.name]
            )
        elif setting.init:
            flat[f"{name}.{setting.name}"] = values.get(setting.name)
    return flat
