"""How well the model predicts text that it does not learn from.

    language model, encoder–decoder   −log p = Σ −log p(y_j | y_{<j}, x) / Σ 1    over tokens and EOS of texts
    classifier, tagger                −log p = Σ −log p(y_j | x) / Σ 1            over labels
    masked models                     −log p = Σ w_j −log p(y_j | y_shown, x) / Σ w_j + Σ −log p(T | x) / Σ T
    accuracy                          Σ [y_j is the most probable label] / Σ 1

Masked models: over the hidden tokens of texts and their EOS, each of which counts w_j times; p(T | x) is that
of the length, where the model foresees it. The number is that of a token or a label in every case, so that
exp(−log p) can be compared; padding never counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from unspool.decode.generate import generate
from unspool.decode.search.masked_decoding import MaskPredict
from unspool.decode.search.sampling import Greedy
from unspool.objectives.cross_entropy import CrossEntropy
from unspool.optional_metrics import sacrebleu_metrics
from unspool.plugins import import_object, one_line
from unspool.training.forward_pass import autocast, derive_seed, row_seeds
from unspool.training.run_state import Run

if TYPE_CHECKING:
    from unspool.data.batch import Batch
    from unspool.interfaces import Decoder


@dataclass(frozen=True)
class Validation:
    """Means over the targets of the validation set."""

    nll: float
    """−log p of a target."""
    accuracy: float | None
    """How many labels are right, where a model chooses labels."""


@torch.no_grad()
def validate(run: Run) -> Validation:
    """Over all batches of the validation set, without dropout. Every process must ask."""
    run.model.eval()
    objective, team = run.objective.validation or CrossEntropy(), run.team
    nll = weight = right = hidden = length = 0.0
    ends: dict[int, Tensor] = {}
    for at, mine in _batches_of_this_process(run):
        batch = run.begun(run.valid[at], ends).to(run.settings.device)
        if run.objective.validation is not None:  # the same places each time
            (seeds_N,) = row_seeds([batch], derive_seed(run.seed, f"validation {at}"))
            batch = replace(batch, seeds_N=seeds_N)
        with autocast(run.settings):
            _, part, stats = run.forward_pass(objective, batch, run.clock)
        if run.carries:
            ends = {at: run.take_end()}
        if mine:
            nll, weight, right = nll + stats["nll"], weight + part, right + stats.get("right", 0.0)
            hidden, length = hidden + stats.get("hidden", part), length + stats.get("length", 0.0)
    run.model.train()
    nll, weight, right, hidden, length = team.sums([nll, weight, right, hidden, length])
    if not (weight > 0 and hidden > 0):
        raise ValueError("no target of the validation set counts: give it more text")
    return Validation(
        nll / hidden + length / weight, right / weight if run.model.labels is not None else None
    )


def _batches_of_this_process(run: Run) -> Iterator[tuple[int, bool]]:
    """The batches that this process reads, and whether it is the one that counts them."""
    count, team = len(run.valid), run.team
    if run.carries:  # each goes on where the one before ended: all processes read them all
        yield from ((at, at % team.size == team.rank) for at in range(count))
        return
    # Every process makes as many passes, since sharded weights are gathered by all of them at once.
    for at in range(team.rank, -(-count // team.size) * team.size, team.size):
        yield min(at, count - 1), at < count


# How good what a model says is: BLEU or chrF of its greedy answers to held-out sources.
#
#     score = BLEU or chrF( {argmax-decoded y(x)}, {reference y} ),   over the first R held-out pairs
#
# It may get better while −log p gets worse, and it is what a translation is judged by: `train.measure` lets
# it choose the best checkpoint and end the run. Papineni et al. 2002 (papers.bib: papineni2002bleu); Popović
# 2015 (papers.bib: popovic2015chrf). A model that fills hidden places answers by mask-predict, which draws
# nothing, either.


def corpus_bleu(outputs: Sequence[str], references: Sequence[str]) -> float:
    """0 to 100, of the corpus."""
    return _corpus_score("BLEU", outputs, references)


def corpus_chrf(outputs: Sequence[str], references: Sequence[str]) -> float:
    """0 to 100, of the corpus."""
    return _corpus_score("CHRF", outputs, references)


SCORES: dict[str, Callable[[Sequence[str], Sequence[str]], float]] = {
    "bleu": corpus_bleu,
    "chrf": corpus_chrf,
}


def score_function(name: str) -> Callable[[Sequence[str], Sequence[str]], float]:
    """The corpus score of that name. It imports a Python function: the user's trust has been checked."""
    if name in SCORES:
        return SCORES[name]
    function = import_object(name, "train.measure =")

    def score(outputs: Sequence[str], references: Sequence[str]) -> float:
        try:
            return float(function(list(outputs), list(references)))
        except Exception as error:
            raise ValueError(f"train.measure = {name!r} failed with {one_line(error)}") from error

    return score


def greedy_score(run: Run) -> float | None:
    """The score that the settings ask for; None where they ask for the loss. Every process must ask."""
    if run.settings.measure == "loss":
        return None
    measure = score_function(run.settings.measure)
    found = 0.0
    if run.team.rank == 0:
        model: Any = run.model
        model.eval()
        sources, references = sources_and_references(run.valid, run.settings.measured_rows, model.tokenizer)
        longest = max(len(model.tokenizer.encode(it)) for it in references)
        decoder: Decoder = Greedy() if model.infilling is None else MaskPredict()
        outputs = generate(model, sources, decoder, max_new_tokens=2 * longest + 10, seed=0)
        found = measure([out.text for out in outputs], references)
        model.train()
    return run.team.sums([found])[0]


def sources_and_references(
    batches: Sequence[Batch], rows: int, text: Any
) -> tuple[list[list[int]], list[str]]:
    """The first sources, without their EOS, and what they should become."""
    sources: list[list[int]] = []
    references: list[str] = []
    for batch in batches:
        assert batch.source_NS is not None
        assert batch.source_lengths_N is not None
        lengths = zip(batch.source_lengths_N.tolist(), batch.lengths_N.tolist(), strict=True)
        for at, (length, said) in enumerate(lengths):
            sources.append(batch.source_NS[at, : length - 1].tolist())
            references.append(text.decode(batch.targets_NU[at, :said].tolist()))
    return sources[:rows], references[:rows]


def _corpus_score(name: str, outputs: Sequence[str], references: Sequence[str]) -> float:
    metric = getattr(sacrebleu_metrics(), name)()
    return float(metric.corpus_score(list(outputs), [list(references)]).score)
