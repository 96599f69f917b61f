"""How much of a reference a translation shares: BLEU, chrF and TER of a whole corpus, by sacrebleu.

    BLEU = BP · exp(Σ_n ¼ log precision_n), n = 1 … 4
    chrF = (1 + β²)·P·R / (β²·P + R), β = 2
    TER  = edits / words of the reference

Papineni et al. 2002, §2.3 (papers.bib: papineni2002bleu); Popović 2015, eq. 1 (papers.bib: popovic2015chrf);
Snover et al. 2006, §3 (papers.bib: snover2006study). Each score comes with sacrebleu's signature, without
which the numbers of two papers cannot be compared (Post 2018, papers.bib: post2018call).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Overlap:
    """Corpus scores from 0 to 100; for TER alone lower is better, and it may exceed 100."""

    bleu: float
    chrf: float
    ter: float
    signatures: Mapping[str, str]
    """How each was computed: sacrebleu's version, tokenizer, smoothing."""


def overlap(outputs: Sequence[str], references: Sequence[str]) -> Overlap:
    """Scores of the outputs, one reference for each."""
    check_pairs(outputs, references)
    scores, signatures = {}, {}
    for name, metric in sacrebleu_metrics().items():
        scores[name] = float(metric.corpus_score(list(outputs), [list(references)]).score)
        signatures[name] = str(metric.get_signature())
    return Overlap(scores["bleu"], scores["chrf"], scores["ter"], signatures)


def check_pairs(outputs: Sequence[str], references: Sequence[str]) -> None:
    """Refuse what are not two lists of strings of equal length."""
    for name, texts in {"outputs": outputs, "references": references}.items():
        if isinstance(texts, (str, bytes)) or not isinstance(texts, Sequence):
            raise TypeError(f"{name} is {texts!r:.40}, but must be a list of texts: of one text, give [text]")
        for place, text in enumerate(texts):
            if not isinstance(text, str):
                raise TypeError(f"{name} {place} is {text!r:.40}, but must be a string")
    if len(outputs) != len(references):
        raise ValueError(f"{len(outputs)} outputs cannot be compared with {len(references)} references")
    if not outputs:
        raise ValueError("there is no output to score: give at least one")


def sacrebleu_metrics() -> dict[str, Any]:
    """sacrebleu's three, by name, as everybody reports them."""
    try:
        from sacrebleu.metrics import BLEU, CHRF, TER
    except ImportError as error:
        raise ImportError(
            "BLEU, chrF and TER need the sacrebleu package: pip install unspool[evaluate]"
        ) from error
    return {"bleu": BLEU(), "chrf": CHRF(), "ter": TER()}
