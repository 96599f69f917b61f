"""Overlap with references: corpus BLEU, chrF and TER by sacrebleu, self-BLEU and length ratio.

    BLEU = BP · exp(Σ_n ¼ log precision_n), n = 1 … 4
    chrF = (1 + β²)·P·R / (β²·P + R), β = 2
    TER  = edits / words of the reference

Papineni et al. 2002, §2.3 (papers.bib: papineni2002bleu); Popović 2015, eq. 1 (papers.bib: popovic2015chrf);
Snover et al. 2006, §3 (papers.bib: snover2006study). Each score has sacrebleu's signature, so that numbers
of different papers can be compared (Post 2018, papers.bib: post2018call).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from typing import Any

import numpy as np

from unspool.arguments import as_int
from unspool.evaluate.diversity import Tokens, check_texts, ngrams
from unspool.evaluate.significance import SummedMeasure, ratio_of
from unspool.lazy import sacrebleu_metrics


@dataclass(frozen=True)
class Overlap:
    """Corpus scores from 0 to 100; TER can exceed 100, and lower is better for it."""

    bleu: float
    chrf: float
    ter: float
    signatures: Mapping[str, str]
    """sacrebleu's version, tokenizer and smoothing for each score."""


def overlap(outputs: Sequence[str], references: Sequence[str]) -> Overlap:
    """Compute BLEU, chrF and TER of outputs with one reference each."""
    found = signed_measures(outputs, references)
    bleu, chrf, ter = (measure.value for measure, _ in found.values())
    return Overlap(bleu, chrf, ter, {name: signature for name, (_, signature) in found.items()})


def overlap_measures(outputs: Sequence[str], references: Sequence[str]) -> dict[str, SummedMeasure]:
    """Compute BLEU, chrF and TER as functions of sums, for bootstrap intervals and paired tests.

    Counts of an output and its reference:

        BLEU: length of the output, of the reference, matching and all n-grams (n = 1 … 4)
        chrF: for n = 1 … 6 the character n-grams of the output, of the reference, and of both
        TER:  edits, words of the reference

    sacrebleu computes the counts and the measures, by the methods that its own significance tests use.
    """
    return {name: measure for name, (measure, _) in signed_measures(outputs, references).items()}


def signed_measures(
    outputs: Sequence[str], references: Sequence[str]
) -> dict[str, tuple[SummedMeasure, str]]:
    """Return `overlap_measures` with sacrebleu's signatures."""
    check_texts(outputs, "outputs", strings=True)
    check_texts(references, "references", outputs, strings=True)
    metrics = sacrebleu_metrics()
    by_name = {"bleu": metrics.BLEU(), "chrf": metrics.CHRF(), "ter": metrics.TER()}
    return {
        name: (_summed(metric, outputs, references), str(metric.get_signature()))
        for name, metric in by_name.items()
    }


def _summed(metric: Any, outputs: Sequence[str], references: Sequence[str]) -> SummedMeasure:
    counts_NK = np.array(metric._extract_corpus_statistics(outputs, [references]), dtype=float)
    score = metric._compute_score_from_stats
    return SummedMeasure(counts_NK, lambda sums_K: float(score(sums_K.tolist()).score))


EPSILON = 0.1
"""Matches of an n-gram order without a match."""


def self_bleu(texts: Sequence[Tokens], n: int = 4) -> float:
    """Self-BLEU: the mean BLEU, from 0 to 1, of each text against all others. High means low diversity.

        self-BLEU(X) = (1/|X|) Σ_{x∈X} BLEU(x; references X ∖ {x})

    Zhu et al. 2018, "Texygen" (papers.bib: zhu2018texygen); BLEU is Papineni et al. 2002's (papers.bib:
    papineni2002bleu), of one sentence, with all other texts as references: counts are clipped at the largest
    count in a reference, and the brevity penalty uses the nearest length. An n-gram order without a match
    counts ε = 0.1 matches, as in Texygen. Orders longer than the text do not count. A text that shares no
    token with the others scores 0.

    A text is any sequence of hashable tokens. One pass over the n-grams suffices, because for each n-gram
    only the two largest counts are kept.
    """
    check_texts(texts)
    n = as_int("n", n, at_least=1, advice="4 is usual.")
    if len(texts) < 2:
        raise ValueError("self-BLEU needs at least two texts")
    all_counts = [[Counter(ngrams(text, order)) for order in range(1, n + 1)] for text in texts]
    max_counts = [_two_largest([text_counts[order] for text_counts in all_counts]) for order in range(n)]
    lengths = sorted(map(len, texts))
    scores = []
    for index, counters in enumerate(all_counts):
        logs, any_match = list[float](), False
        for counter, order_counts in zip(counters, max_counts, strict=True):
            if not counter:
                break
            matches = 0
            for gram, count in counter.items():
                best, owner, second = order_counts[gram]
                matches += min(count, second if owner == index else best)
            any_match |= matches > 0
            logs.append(log((matches or EPSILON) / counter.total()))
        length = len(texts[index])
        penalty = min(0.0, 1 - _nearest(length, lengths) / length) if length else 0.0
        scores.append(exp(penalty + sum(logs) / len(logs)) if any_match else 0.0)
    return sum(scores) / len(scores)


MaxCounts = dict[Hashable, tuple[int, int, int]]
"""n-gram → its largest count in a text, the index of that text, and the largest count in another."""


def _two_largest(counters: Sequence[Counter[tuple[Hashable, ...]]]) -> MaxCounts:
    largest: MaxCounts = {}
    for index, counter in enumerate(counters):
        for gram, count in counter.items():
            best, owner, second = largest.get(gram, (0, -1, 0))
            if count > best:
                largest[gram] = (count, index, best)
            elif count > second:
                largest[gram] = (best, owner, count)
    return largest


def _nearest(length: int, lengths: Sequence[int]) -> int:
    """Return the nearest length of the other texts; the shorter one of two equally near."""
    at = bisect_left(lengths, length)
    others = [*lengths[max(at - 1, 0) : at], *lengths[at + 1 : at + 2]]
    return min(others, key=lambda other: (abs(other - length), other))


def length_ratio(outputs: Sequence[Tokens], references: Sequence[Tokens]) -> SummedMeasure:
    """Length ratio of outputs and references, given as tokens: words, ids, or characters of strings.

        ratio = Σᵢ |outputᵢ| / Σᵢ |referenceᵢ|

    BLEU's brevity penalty is a function of it (Papineni et al. 2002, §2.2; papers.bib: papineni2002bleu).
    Wide beams give ratios below 1 (Koehn & Knowles 2017; papers.bib: koehn2017six).
    """
    check_texts(outputs, "outputs")
    check_texts(references, "references", outputs)
    if not any(map(len, references)):
        raise ValueError("all references are empty")
    return ratio_of(list(map(len, outputs)), list(map(len, references)))
