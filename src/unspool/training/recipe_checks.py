"""Every combination of settings that a recipe refuses or warns about, each as one small function.

    RECIPE_CHECKS    need only the recipe: they run before anything is read
    MODEL_CHECKS     need the model and the data: they run before the first update
    RESUME_CHECKS    compare a resumed run with its checkpoint: they run before anything is written
    WARNINGS         combinations that are allowed but rarely intended

A check returns the message of the error, or None. Limits of a single setting are checked by its dataclass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unspool.config import kind_name, to_dict
from unspool.data import Bucketed, OwnText
from unspool.data.bucketing import bpe_dropout_rates
from unspool.data.encoded_store import FileHashes
from unspool.objectives import OBJECTIVES
from unspool.training.hooks import KerbsReallocate
from unspool.training.optim import Schedule
from unspool.training.settings import TrainSettings

if TYPE_CHECKING:
    from unspool.data.batch import Batch
    from unspool.interfaces import Feed
    from unspool.training.recipe import Recipe
    from unspool.training.resumption import Change


def pretrained_model_has_a_kind(recipe: Recipe) -> str | None:
    """A pretrained model has its own configuration."""
    if recipe.pretrained is None or "kind" not in recipe.model:
        return None
    return f"model.from = {recipe.pretrained.from_!r} excludes model.kind: remove one of them"


def pretrained_model_has_a_vocabulary(recipe: Recipe) -> str | None:
    """A pretrained model has its own vocabulary."""
    if recipe.pretrained is None or recipe.text is None:
        return None
    return f"model.from = {recipe.pretrained.from_!r} brings its own vocabulary: remove [text]"


def vocabulary_is_missing(recipe: Recipe) -> str | None:
    """A new model needs [text], unless the data has a vocabulary."""
    if recipe.text is not None or recipe.pretrained is not None or isinstance(recipe.data, OwnText):
        return None
    return 'the recipe lacks the section [text]: add one, such as kind = "bpe"'


def adapters_and_frozen_parts(recipe: Recipe) -> str | None:
    """With adapters, all other weights are frozen."""
    if recipe.pretrained is None or recipe.pretrained.lora is None or not recipe.pretrained.frozen:
        return None
    return "model.lora already freezes all other weights: remove model.frozen"


def averaged_adapters(recipe: Recipe) -> str | None:
    """The mean of low-rank products is not a low-rank product."""
    if recipe.pretrained is None or recipe.pretrained.lora is None or recipe.train.final != "average":
        return None
    return 'train.final = "average" does not work with model.lora: choose "best" or "last"'


def sharded_adapters(recipe: Recipe) -> str | None:
    """Adapters are too small to shard."""
    if recipe.pretrained is None or recipe.pretrained.lora is None or not recipe.train.shard:
        return None
    return "train.shard does not work with model.lora: set it to false, and each process has a copy"


def averaged_senses(recipe: Recipe) -> str | None:
    """Reallocated senses of different checkpoints belong to different words."""
    if recipe.train.final != "average" or not _reallocates(recipe):
        return None
    return 'train.final = "average" does not work with kerbs_reallocate: choose "best" or "last"'


def sharded_senses(recipe: Recipe) -> str | None:
    """Reallocation needs all senses in one process."""
    if not recipe.train.shard or not _reallocates(recipe):
        return None
    return "train.shard does not work with kerbs_reallocate: set it to false"


def sharded_rollouts(recipe: Recipe) -> str | None:
    """Sharded weights allow only the forward pass that all processes run together."""
    kinds = [kind_name(OBJECTIVES, type(it)) for it in recipe.objectives if it.own_batches]
    if not recipe.train.shard or not kinds:
        return None
    return f"train.shard does not work with {kinds[0]}, which runs extra forward passes: set it to false"


def sharded_attention_losses(recipe: Recipe) -> str | None:
    """Losses on attention read weights outside of the forward pass."""
    kinds = [kind_name(OBJECTIVES, type(it)) for it in recipe.objectives if it.watches]
    if not recipe.train.shard or not kinds:
        return None
    return f"train.shard does not work with losses on attention ({kinds[0]}): set it to false"


def sharded_scores(recipe: Recipe) -> str | None:
    """One process generates the outputs that are scored, but it has only a part of the weights."""
    if not recipe.train.shard or recipe.train.measure == "loss":
        return None
    return f'train.shard does not work with train.measure = "{recipe.train.measure}": choose "loss"'


def packed_bpe_dropout(recipe: Recipe) -> str | None:
    """BPE-dropout changes the number of tokens of a text."""
    if isinstance(recipe.batches, Bucketed) or not bpe_dropout_rates(recipe.text):
        return None
    return 'text.dropout needs batches of whole texts: set batches.kind = "bucketed"'


def _reallocates(recipe: Recipe) -> bool:
    return any(isinstance(hook, KerbsReallocate) for hook in recipe.hooks)


RECIPE_CHECKS: tuple[Callable[[Recipe], str | None], ...] = (
    pretrained_model_has_a_kind,
    pretrained_model_has_a_vocabulary,
    vocabulary_is_missing,
    adapters_and_frozen_parts,
    averaged_adapters,
    sharded_adapters,
    averaged_senses,
    sharded_senses,
    sharded_rollouts,
    sharded_attention_losses,
    sharded_scores,
    packed_bpe_dropout,
)


def check_recipe(recipe: Recipe) -> None:
    """Refuse settings that contradict each other."""
    _raise_first(check(recipe) for check in RECIPE_CHECKS)


@dataclass(frozen=True)
class BuiltRun:
    """A recipe with its model and data."""

    recipe: Recipe
    model: Any
    feed: Feed
    valid: Sequence[Batch]


def unmasked_objective(run: BuiltRun) -> str | None:
    """A masked model learns to fill masked positions."""
    if run.model.infilling is None or run.recipe.total_objective.hides:
        return None
    name = type(run.model).__name__
    return f'a {name} needs a masking objective: set objective.kind = "masked" or "masked_diffusion"'


def interrupted_carry(run: BuiltRun) -> str | None:
    """Hidden states carried from batch to batch must not see other rows in between."""
    if not (run.recipe.total_objective.own_batches and run.feed.carries):
        return None
    return "batches.carry does not work with an objective that runs extra batches: set it to false"


def score_without_validation(run: BuiltRun) -> str | None:
    """A score needs held-out pairs."""
    measure = run.recipe.train.measure
    if measure == "loss" or run.valid:
        return None
    return f'train.measure = "{measure}" needs held-out pairs: give data.valid or valid_lines'


def score_without_sources(run: BuiltRun) -> str | None:
    """A score compares outputs for sources."""
    measure = run.recipe.train.measure
    if measure == "loss" or run.model.is_encoder_decoder:
        return None
    name = type(run.model).__name__
    return f'train.measure = "{measure}" needs an encoder–decoder, but the model is a {name}: choose "loss"'


MODEL_CHECKS: tuple[Callable[[BuiltRun], str | None], ...] = (
    unmasked_objective,
    interrupted_carry,
    score_without_validation,
    score_without_sources,
)


def check_built_run(recipe: Recipe, model: Any, feed: Feed, valid: Sequence[Batch]) -> None:
    """Refuse settings that the model or the data does not support."""
    run = BuiltRun(recipe, model, feed, valid)
    _raise_first(check(run) for check in MODEL_CHECKS)


def check_batches(model: Any, batches: Sequence[Batch]) -> None:
    """Refuse pairs for a model of single texts, single texts for an encoder–decoder, and rows too long."""
    for batch in batches:
        is_pair = batch.source_NS is not None
        if is_pair != model.is_encoder_decoder:
            kind = type(model).__name__
            raise ValueError(
                f"a {kind} reads single texts, but the data has pairs: choose transformer_seq2seq"
                if is_pair
                else f"a {kind} needs a source and a target: choose data of pairs, such as parallel or tsv"
            )
        check_row_length(model, batch)


def check_row_length(model: Any, batch: Batch) -> None:
    """Refuse rows that are longer than the model's context."""
    sides = (batch.inputs_NT, batch.source_NS)
    length = max(side.shape[1] for side in sides if side is not None)
    if model.context is not None and length > model.context:
        raise ValueError(
            f"a row has {length} tokens, but model.context is {model.context}: raise it, or set "
            f'batches.max_length = {model.context} and batches.long = "cut"'
        )


@dataclass(frozen=True)
class ResumedRun:
    """A run folder with the settings before and after a resumption."""

    path: Path
    changes: Sequence[Change]
    data: Any
    files_before: FileHashes
    files_now: FileHashes


def changed_settings(run: ResumedRun) -> str | None:
    """Settings that already shaped the run cannot change."""
    refused = [str(it) for it in run.changes if not it.allowed]
    return f"these settings cannot change in a resumed run: {'; '.join(refused)}" if refused else None


def changed_files(run: ResumedRun) -> str | None:
    """Files may move, but their content must stay."""
    for name in sorted({*run.files_before, *run.files_now}):
        if run.files_before.get(name) != run.files_now.get(name):
            change = (
                "is missing"
                if name not in run.files_now
                else "is new"
                if name not in run.files_before
                else "has other content"
            )
            return f"data.{name} = {getattr(run.data, name)!r} {change} since the run began"
    return None


RESUME_CHECKS: tuple[Callable[[ResumedRun], str | None], ...] = (changed_settings, changed_files)
NEW_RUN = "undo the change, or start a new run with another --output"


def check_resumption(run: ResumedRun) -> None:
    """Refuse changes after which the run folder would no longer describe how the model was trained."""
    messages = (check(run) for check in RESUME_CHECKS)
    _raise_first(None if it is None else f"{run.path}: {it}; {NEW_RUN}" for it in messages)


def check_resumed_length(path: Path, updates: int, done: int) -> None:
    """Refuse to end a run before its last update."""
    if updates < done:
        raise ValueError(f"{path}: the run has done {done} updates, not only {updates}; {NEW_RUN}")


def check_adapter_base(path: Path, before: str | None, now: str | None, name: str) -> None:
    """Refuse to continue adapters with another model than they were trained for."""
    if before is not None and before != now:
        raise ValueError(
            f"{path}: its adapters belong to another model than model.from = {name!r}; {NEW_RUN}"
        )


def _raise_first(messages: Any) -> None:
    for message in messages:
        if message is not None:
            raise ValueError(message)


@dataclass(frozen=True)
class Plan:
    """The settings of a run whose number of updates is known."""

    train: TrainSettings
    schedule: Schedule
    validates: bool
    """Whether the data has a validation part."""
    rewarded: bool = False
    """Whether an objective maximises a reward."""


def warmup_exceeds_the_run(plan: Plan) -> str | None:
    """The learning rate never reaches its peak."""
    warmup, updates = to_dict(plan.schedule).get("warmup", 0), plan.train.updates
    if warmup <= updates:
        return None
    return (
        f"schedule.warmup={warmup} is longer than the run of {updates} updates: the learning rate ends at "
        f"{plan.schedule(updates, updates):.0%} of train.lr"
    )


def too_few_checkpoints_to_average(plan: Plan) -> str | None:
    """The run writes fewer checkpoints than it averages."""
    count = -(-plan.train.updates // plan.train.checkpoint_every)
    if plan.train.final != "average" or plan.train.average <= count:
        return None
    return f"train.average={plan.train.average}, but the run has only {count} checkpoint{'s' * (count > 1)}"


def average_is_not_used(plan: Plan) -> str | None:
    """train.average has an effect only with train.final = "average"."""
    if plan.train.final == "average" or plan.train.average == TrainSettings.average:
        return None
    return f'train.average={plan.train.average} has no effect: set train.final = "average" as well'


def patience_without_validation(plan: Plan) -> str | None:
    """Patience counts validations."""
    if plan.train.patience is None or plan.validates:
        return None
    return "train.patience has no effect: the data has no part to validate on"


def best_likelihood_of_a_reward(plan: Plan) -> str | None:
    """A reward may lower the likelihood that chooses the best checkpoint."""
    chooses_by_loss = plan.validates and plan.train.final == "best" and plan.train.measure == "loss"
    if not (plan.rewarded and chooses_by_loss):
        return None
    return (
        'train.final = "best" keeps the weights with the best likelihood, which a reward may lower: set '
        'train.measure to "bleu" or "chrf", or train.final = "last"'
    )


WARNINGS: tuple[Callable[[Plan], str | None], ...] = (
    warmup_exceeds_the_run,
    too_few_checkpoints_to_average,
    average_is_not_used,
    patience_without_validation,
    best_likelihood_of_a_reward,
)


def recipe_warnings(
    train: TrainSettings, schedule: Schedule, validates: bool, rewarded: bool = False
) -> list[str]:
    """Return a sentence for each combination that is allowed but rarely intended."""
    plan = Plan(train, schedule, validates, rewarded)
    return [message for check in WARNINGS if (message := check(plan)) is not None]
