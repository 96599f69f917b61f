"""Whether a model and its data belong together: asked before the first update."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unspool.data.batch import Batch


def check_model_and_data(model: Any, batches: Sequence[Batch]) -> None:
    """Refuse pairs for a model of single texts, single texts for one of pairs, and rows too long for it."""
    for batch in batches:
        pairs = batch.source_NS is not None
        if pairs != model.answers:
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
