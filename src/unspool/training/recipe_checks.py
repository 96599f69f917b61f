"""Every combination of settings that a recipe refuses or warns about.

    check_recipe       needs only the recipe: runs before anything is read
    check_built_run    needs the model and the data: runs before the first update
    check_resumption   compares a resumed run with its checkpoint: runs before anything is written
    recipe_warnings    combinations that are allowed but rarely intended

Limits of a single setting are checked by its dataclass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unspool.config import kind_name, to_dict
from unspool.data import Bucketed, OwnTokenizer
from unspool.data.bpe_dropout import bpe_dropout_rates
from unspool.data.encoded_store import FileHashes
from unspool.objectives import OBJECTIVES
from unspool.training.hooks import KerbsReallocate
from unspool.training.optim import Schedule
from unspool.training.settings import TrainSettings

if TYPE_CHECKING:
    from unspool.data.batch import Batch
    from unspool.training.recipe import Change, Recipe

NEW_RUN = "undo the change, or start a new run with another --output"


def check_recipe(recipe: Recipe) -> None:
    _raise_first(_contradictions(recipe))


def _contradictions(recipe: Recipe) -> Iterator[str]:
    train, pretrained = recipe.train, recipe.pretrained
    if pretrained is not None:
        if "kind" in recipe.model:
            yield f"model.from = {pretrained.from_!r} excludes model.kind: remove one of them"
        if recipe.tokenizer is not None:
            yield f"model.from = {pretrained.from_!r} brings its own vocabulary: remove [tokenizer]"
    elif recipe.tokenizer is None and not isinstance(recipe.data, OwnTokenizer):
        yield 'the recipe lacks the section [tokenizer]: add one, such as kind = "bpe"'
    if pretrained is not None and pretrained.lora is not None:
        if pretrained.frozen:
            yield "model.lora already freezes all other weights: remove model.frozen"
        if train.final == "average":  # the mean of low-rank products is not a low-rank product
            yield 'train.final = "average" does not work with model.lora: choose "best" or "last"'
        if train.shard:
            yield "train.shard does not work with model.lora: set it to false, and each process has a copy"
    if any(isinstance(hook, KerbsReallocate) for hook in recipe.hooks):
        if train.final == "average":  # senses of different checkpoints belong to different words
            yield 'train.final = "average" does not work with kerbs_reallocate: choose "best" or "last"'
        if train.shard:  # reallocation needs all senses in one process
            yield "train.shard does not work with kerbs_reallocate: set it to false"
    if train.shard:
        # Sharded weights allow only the forward pass that all processes run together.
        for objective in recipe.objectives:
            kind = kind_name(OBJECTIVES, type(objective))
            if objective.own_batches:
                yield f"train.shard does not work with {kind}, which runs extra batches: set it to false"
            if objective.needs_attention:
                yield f"train.shard does not work with losses on attention ({kind}): set it to false"
        if train.measure != "loss":
            yield f'train.shard does not work with train.measure = "{train.measure}": choose "loss"'
    if not isinstance(recipe.batches, Bucketed) and any(bpe_dropout_rates(recipe.tokenizer)):
        # It changes the number of tokens of a text.
        yield 'tokenizer.dropout needs batches of whole texts: set batches.kind = "bucketed"'


def check_built_run(recipe: Recipe, model: Any, valid: Sequence[Batch]) -> None:
    _raise_first(_unsupported(recipe, model, valid))


def _unsupported(recipe: Recipe, model: Any, valid: Sequence[Batch]) -> Iterator[str]:
    name, measure, objective = type(model).__name__, recipe.train.measure, recipe.total_objective
    if model.infilling is not None and not objective.masks_tokens:
        yield f'a {name} needs a masking objective: set objective.kind = "masked" or "masked_diffusion"'
    if model.labels is not None and any(bpe_dropout_rates(recipe.tokenizer)):
        yield f"tokenizer.dropout does not work with labels, and a {name} predicts labels: set it to 0"
    if measure != "loss" and not valid:
        yield f'train.measure = "{measure}" needs held-out pairs: give data.valid or valid_lines'
    if measure != "loss" and not model.is_encoder_decoder:
        yield f'train.measure = "{measure}" needs an encoder–decoder, but this is a {name}: choose "loss"'


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
    sides = (batch.inputs_NT, batch.source_NS)
    length = max(side.shape[1] for side in sides if side is not None)
    if model.context is not None and length > model.context:
        raise ValueError(
            f"a row has {length} tokens, but model.context is {model.context}: raise it, or set "
            f'batches.max_length = {model.context} and batches.long = "cut"'
        )


def check_resumption(
    path: Path, changes: Sequence[Change], data: Any, before: FileHashes, now: FileHashes
) -> None:
    """Refuse changes after which the run folder would no longer describe how the model was trained.

    Settings that already shaped the run cannot change. Files (hashes `before` and `now`) may move, but their
    content must stay.
    """
    refused = [str(change) for change in changes if not change.allowed]
    if refused:
        raise ValueError(
            f"{path}: these settings cannot change in a resumed run: {'; '.join(refused)}; {NEW_RUN}"
        )
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name):
            change = (
                "is missing" if name not in now else "is new" if name not in before else "has other content"
            )
            raise ValueError(
                f"{path}: data.{name} = {getattr(data, name)!r} {change} since the run began; {NEW_RUN}"
            )


def _raise_first(messages: Iterator[str]) -> None:
    for message in messages:
        raise ValueError(message)


def recipe_warnings(
    train: TrainSettings, schedule: Schedule, validates: bool, rewarded: bool = False
) -> list[str]:
    """Return a sentence for each combination that is allowed but rarely intended.

    `train` has its number of updates. `validates` is True if the data has a validation part, `rewarded` if an
    objective maximises a reward.
    """
    warnings = []
    warmup, updates = to_dict(schedule).get("warmup", 0), train.updates
    if warmup > updates:
        warnings.append(
            f"schedule.warmup={warmup} is longer than the run of {updates} updates: the learning rate ends "
            f"at {schedule(updates, updates):.0%} of train.lr"
        )
    checkpoints = -(-updates // train.checkpoint_every)
    if train.final == "average" and train.average > checkpoints:
        some = f"{checkpoints} checkpoint{'s' * (checkpoints > 1)}"
        warnings.append(f"train.average={train.average}, but the run has only {some}")
    if train.final != "average" and train.average != TrainSettings.average:
        warnings.append(f'train.average={train.average} has no effect: set train.final = "average" as well')
    if train.patience is not None and not validates:
        warnings.append("train.patience has no effect: the data has no part to validate on")
    if rewarded and validates and train.final == "best" and train.measure == "loss":
        warnings.append(
            'train.final = "best" keeps the weights with the best likelihood, which a reward may lower: set '
            'train.measure to "bleu" or "chrf", or train.final = "last"'
        )
    return warnings
