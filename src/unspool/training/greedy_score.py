"""How good what a model says is: BLEU or chrF of its greedy answers to held-out sources.

    score = BLEU or chrF( {argmax-decoded y(x)}, {reference y} ),   over the first R held-out pairs

It may get better while −log p gets worse, and it is what a translation is judged by: `train.measure` lets it
choose the best checkpoint and end the run. Papineni et al. 2002 (papers.bib: papineni2002bleu); Popović 2015
(papers.bib: popovic2015chrf). A model that fills hidden places answers by mask-predict, which
draws nothing, either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from unspool.decode.generate import generate
from unspool.decode.search.greedy import Greedy
from unspool.decode.search.mask_predict import MaskPredict

if TYPE_CHECKING:
    from unspool.data.batch import Batch
    from unspool.protocols import Search
    from unspool.training.run_state import Run


def corpus_bleu(outputs: Sequence[str], references: Sequence[str]) -> float:
    """0 to 100, of the corpus."""
    return _score("BLEU", outputs, references)


def corpus_chrf(outputs: Sequence[str], references: Sequence[str]) -> float:
    """0 to 100, of the corpus."""
    return _score("CHRF", outputs, references)


SCORES: dict[str, Callable[[Sequence[str], Sequence[str]], float]] = {
    "bleu": corpus_bleu,
    "chrf": corpus_chrf,
}


def greedy_score(run: Run) -> float | None:
    """The score that the settings ask for; None where they ask for the loss. Every process must ask."""
    measure = SCORES.get(run.settings.measure)
    if measure is None:
        return None
    found = 0.0
    if run.team.rank == 0:
        model: Any = run.model
        model.eval()
        sources, references = pairs(run.valid, run.settings.measured_rows, model.text)
        longest = max(len(model.text.encode(it)) for it in references)
        search: Search = Greedy() if model.infilling is None else MaskPredict()
        outputs = generate(model, sources, search, max_new_tokens=2 * longest + 10, seed=0)
        found = measure([out.text for out in outputs], references)
        model.train()
    return run.team.sums([found])[0]


def pairs(batches: Sequence[Batch], rows: int, text: Any) -> tuple[list[list[int]], list[str]]:
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


def check_measure(measure: str, model: Any, batches: Sequence[Batch]) -> None:
    """Refuse, before the first update, a score that there is nothing to compute from."""
    if measure == "loss":
        return
    if not batches:
        raise ValueError(f'train.measure = "{measure}" needs held-out pairs: give data.valid or valid_lines')
    if not model.answers:
        raise ValueError(
            f'train.measure = "{measure}" compares answers to sources, and a {type(model).__name__} has '
            'none: choose an encoder–decoder, or measure = "loss"'
        )
    _metrics()


def _metrics() -> Any:
    try:
        from sacrebleu import metrics
    except ImportError as error:
        raise ImportError(
            "BLEU and chrF need the sacrebleu package: pip install unspool[evaluate]"
        ) from error
    return metrics


def _score(name: str, outputs: Sequence[str], references: Sequence[str]) -> float:
    metric = getattr(_metrics(), name)()
    return float(metric.corpus_score(list(outputs), [list(references)]).score)
