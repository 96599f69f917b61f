"""What a recipe may ask for but hardly means: said before the first update, not refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unspool.config import to_dict
from unspool.data.batch import Batch
from unspool.training.optim import Schedule
from unspool.training.settings import TrainSettings


def recipe_warnings(
    train: TrainSettings, schedule: Schedule, validates: bool, rewarded: bool = False
) -> list[str]:
    """A sentence for each; `train` counts its updates, `validates` says whether there is data for it, and
    `rewarded` whether an objective follows a reward."""
    found = []
    warmup = to_dict(schedule).get("warmup", 0)
    if warmup > train.updates:
        reached = schedule(train.updates, train.updates)
        found.append(
            f"schedule.warmup={warmup} is longer than the run of {train.updates} updates: the learning rate "
            f"never reaches train.lr, but ends at {reached:.0%} of it"
        )
    count = -(-train.updates // train.checkpoint_every)
    if train.final == "average" and train.average > count:
        found.append(
            f"train.average={train.average}, but with train.checkpoint_every={train.checkpoint_every} the "
            f"run of {train.updates} updates has {count} checkpoint{'s' * (count > 1)}: the mean is of "
            f"{'these' if count > 1 else 'this one'}"
        )
    if train.final != "average" and train.average != TrainSettings.average:
        found.append(
            f'train.average={train.average} changes nothing while train.final = "{train.final}": '
            'set train.final = "average" as well'
        )
    if train.patience is not None and not validates:
        found.append("train.patience has nothing to go by: the data has no part to validate on")
    if rewarded and validates and train.final == "best" and train.measure == "loss":
        found.append(
            'an objective follows a reward, and train.final = "best" takes the weights with the best '
            'likelihood, which a reward may lower: set train.measure to "bleu" or "chrf", or train.final = '
            '"last"'
        )
    return found


# Whether a model and its data belong together: asked before the first update.


def check_model_and_data(model: Any, batches: Sequence[Batch]) -> None:
    """Refuse pairs for a model of single texts, single texts for one of pairs, and rows too long for it."""
    for batch in batches:
        pairs = batch.source_NS is not None
        if pairs != model.is_encoder_decoder:
            kind = type(model).__name__
            raise ValueError(
                f"the data has a source and a target, but a {kind} reads one text only: choose an "
                'encoder–decoder (kind = "transformer_seq2seq" or "rnn_seq2seq")'
                if pairs
                else f"a {kind} needs a source and a target, but the data has one text only: choose data of "
                'pairs (kind = "parallel" or "tsv"), or a language model'
            )
        check_length(model, batch)


def check_length(model: Any, batch: Batch) -> None:
    """Refuse rows that are longer than the model's context."""
    context = model.context
    sides = (batch.inputs_NT, batch.source_NS)
    length = max(side.shape[1] for side in sides if side is not None)
    if context is not None and length > context:
        raise ValueError(
            f"a row has {length} tokens, but model.context is {context}: raise it, or set batches.max_length "
            f'to {context} with batches.long = "cut"'
        )
