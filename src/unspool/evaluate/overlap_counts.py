"""BLEU, chrF and TER as functions of sums: what each output and its reference count.

    BLEU: matching and all n-grams (n = 1 … 4), length of the output, of the reference
    chrF: for n = 1 … 6 the character n-grams of the output, of the reference, and of both
    TER:  edits, words of the reference

Papineni et al. 2002, §2.3 (papers.bib: papineni2002bleu); Popović 2015, eq. 1 (papers.bib: popovic2015chrf);
Snover et al. 2006, §3 (papers.bib: snover2006study). BLEU and TER are counted by sacrebleu; chrF here, for
sacrebleu keeps its counts to itself. The values are those of `overlap`, to rounding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from unspool.evaluate.reference_overlap import check_pairs, sacrebleu_metrics
from unspool.evaluate.summed_measure import Counts, SummedMeasure

CHARACTERS = 6
BETA = 2


def overlap_measures(outputs: Sequence[str], references: Sequence[str]) -> dict[str, SummedMeasure]:
    """BLEU, chrF and TER of the outputs, one reference for each: for intervals and for paired tests."""
    check_pairs(outputs, references)
    bleu, _, ter = sacrebleu_metrics().values()
    pairs = list(zip(outputs, references, strict=True))
    scored = [bleu.corpus_score([out], [[ref]]) for out, ref in pairs]
    bleu_NK = np.array([(*it.counts, *it.totals, it.sys_len, it.ref_len) for it in scored], dtype=float)
    edits = [ter.corpus_score([out], [[ref]]) for out, ref in pairs]
    ter_NK = np.array([(it.num_edits, it.ref_length) for it in edits], dtype=float)
    chrf_NK = np.array([_character_counts(out, ref) for out, ref in pairs], dtype=float)
    return {
        "bleu": SummedMeasure(bleu_NK, _bleu),
        "chrf": SummedMeasure(chrf_NK, _chrf),
        "ter": SummedMeasure(ter_NK, _ter, lower_is_better=True),
    }


def _bleu(sums_K: Counts) -> float:
    from sacrebleu.metrics import BLEU

    *counts, length, wanted = (int(it) for it in sums_K)
    half = len(counts) // 2
    found = BLEU.compute_bleu(counts[:half], counts[half:], length, wanted, smooth_method="exp")
    return float(found.score)


def _ter(sums_2: Counts) -> float:
    edits, words = sums_2
    return 100 * float(edits / words) if words else 100.0 * bool(edits)


def _character_counts(output: str, reference: str) -> list[int]:
    """For each n: n-grams of the output, of the reference, and of both; white space does not count."""
    left, right = ("".join(text.split()) for text in (output, reference))
    found = []
    for n in range(1, CHARACTERS + 1):
        a, b = (Counter(text[i : i + n] for i in range(len(text) - n + 1)) for text in (left, right))
        # As sacrebleu counts: where the reference has none of this length, the output's do not count either.
        found += [a.total() if b else 0, b.total(), (a & b).total()]
    return found


def _chrf(sums_K: Counts) -> float:
    """The F-score of the mean precision and the mean recall over the n that both texts have."""
    orders = [it for it in sums_K.reshape(-1, 3) if it[0] > 0 and it[1] > 0]
    if not orders:
        return 0.0
    precision = float(np.mean([both / hyp for hyp, _, both in orders]))
    recall = float(np.mean([both / ref for _, ref, both in orders]))
    below = BETA**2 * precision + recall
    return 100 * (1 + BETA**2) * precision * recall / below if below else 0.0
