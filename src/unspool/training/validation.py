"""Validation: −log p and accuracy on held-out data, and scores of greedy outputs.

    language model, encoder–decoder   −log p = Σ −log p(y_j | y_{<j}, x) / Σ 1    over tokens and EOS of texts
    classifier, tagger                −log p = Σ −log p(y_j | x) / Σ 1            over labels
    masked models                     −log p = Σ w_j −log p(y_j | y_shown, x) / Σ w_j + Σ −log p(T | x) / Σ T
    accuracy                          Σ [y_j is the most probable label] / Σ 1

Masked models: over the masked tokens of texts and their EOS, with weights w_j; p(T | x) is the probability of
the length, if the model predicts it. The result is per token or label in every case, so that exp(−log p) is
comparable. Padding has weight 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from unspool.data.batch import Batch
from unspool.decode.generate import generate
from unspool.decode.search.masked_decoding import MaskPredict
from unspool.decode.search.sampling import Greedy
from unspool.interfaces import Decoder
from unspool.lazy import sacrebleu_metrics
from unspool.objectives.cross_entropy import CrossEntropy
from unspool.plugins import import_object, one_line
from unspool.training.forward_pass import autocast, derive_seed, row_seeds
from unspool.training.run_state import Run

SACREBLEU_CLASSES = {"bleu": "BLEU", "chrf": "CHRF"}


@dataclass(frozen=True)
class Validation:
    """Means over the targets of the validation set."""

    nll: float
    """−log p of a target."""
    accuracy: float | None
    """Share of correct labels, for models with labels."""


@torch.no_grad()
def validate(run: Run) -> Validation:
    """Evaluate all validation batches without dropout. All processes must call it."""
    run.model.eval()
    objective, processes = run.objective.validation or CrossEntropy(), run.processes
    nll = weight = right = hidden = length = 0.0
    # All processes run the same number of passes, because they gather sharded weights together.
    count, size = len(run.valid), processes.size
    for number in range(processes.rank, -(-count // size) * size, size):
        at = min(number, count - 1)
        batch = run.valid[at].to(run.settings.device)
        if run.objective.validation is not None:  # the same masked positions each time
            (seeds_N,) = row_seeds([batch], derive_seed(run.seed, f"validation {at}"))
            batch = replace(batch, seeds_N=seeds_N)
        with autocast(run.settings):
            _, part, stats = run.forward_pass(objective, batch, run.clock)
        if number < count:
            nll, weight, right = nll + stats["nll"], weight + part, right + stats.get("right", 0.0)
            hidden, length = hidden + stats.get("hidden", part), length + stats.get("length", 0.0)
    run.model.train()
    nll, weight, right, hidden, length = processes.sums([nll, weight, right, hidden, length])
    if not (weight > 0 and hidden > 0):
        raise ValueError("the validation set has no targets: give it more text")
    return Validation(
        nll / hidden + length / weight, right / weight if run.model.labels is not None else None
    )


def score_function(name: str) -> Callable[[Sequence[str], Sequence[str]], float]:
    """Return the corpus score of that name, 0 to 100, or the function module:name (--trust-code was checked).

    BLEU: Papineni et al. 2002 (papers.bib: papineni2002bleu). chrF: Popović 2015 (papers.bib:
    popovic2015chrf).
    """
    if name in SACREBLEU_CLASSES:
        metric: Any = getattr(sacrebleu_metrics(), SACREBLEU_CLASSES[name])()
        return lambda outputs, references: float(metric.corpus_score(outputs, [references]).score)
    function = import_object(name, "train.measure =")

    def score(outputs: Sequence[str], references: Sequence[str]) -> float:
        try:
            return float(function(list(outputs), list(references)))
        except Exception as error:
            raise ValueError(f"train.measure = {name!r} failed with {one_line(error)}") from error

    return score


def greedy_score(run: Run) -> float | None:
    """Score greedy outputs for held-out sources; None if train.measure is "loss". All processes must call it.

        score = BLEU or chrF( {argmax-decoded y(x)}, {reference y} ),   over the first R held-out pairs

    The score may improve while −log p gets worse. Masked models decode by mask-predict.
    """
    if run.settings.measure == "loss":
        return None
    measure = score_function(run.settings.measure)
    value = 0.0
    if run.processes.rank == 0:
        model: Any = run.model
        model.eval()
        sources, references = sources_and_references(run.valid, run.settings.measured_rows, model.tokenizer)
        longest = max(len(model.tokenizer.encode(text)) for text in references)
        decoder: Decoder = Greedy() if model.infilling is None else MaskPredict()
        outputs = generate(model, sources, decoder, max_new_tokens=2 * longest + 10, seed=0)
        value = measure([out.text for out in outputs], references)
        model.train()
    return run.processes.sums([value])[0]


def sources_and_references(
    batches: Sequence[Batch], rows: int, tokenizer: Any
) -> tuple[list[list[int]], list[str]]:
    """Return the first sources, without EOS, and their references."""
    sources: list[list[int]] = []
    references: list[str] = []
    for batch in batches:
        sources += [source[:-1] for source in batch.sources()]
        references += map(tokenizer.decode, batch.targets())
    return sources[:rows], references[:rows]
