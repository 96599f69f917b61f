"""How much of a reference a translation shares: BLEU, chrF and TER of a whole corpus, by sacrebleu.

    BLEU = BP · exp(Σ_n ¼ log precision_n), n = 1 … 4
    chrF = (1 + β²)·P·R / (β²·P + R), β = 2
    TER  = edits / words of the reference

Papineni et al. 2002, §2.3 (papers.bib: papineni2002bleu); Popović 2015, eq. 1 (papers.bib: popovic2015chrf);
Snover et al. 2006, §3 (papers.bib: snover2006study). Each score comes with sacrebleu's signature, without
which the numbers of two papers cannot be compared (Post 2018, papers.bib: post2018call).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from typing import Any

import numpy as np

from unspool.decode.arguments import as_whole
from unspool.evaluate.diversity import Tokens, check_texts, ngrams
from unspool.evaluate.summed_measure import Counts, SummedMeasure, ratio_of


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


CHARACTERS = 6
BETA = 2


def overlap_measures(outputs: Sequence[str], references: Sequence[str]) -> dict[str, SummedMeasure]:
    """BLEU, chrF and TER of the outputs, one reference for each: for intervals and for paired tests.

    BLEU, chrF and TER as functions of sums: what each output and its reference count.

        BLEU: matching and all n-grams (n = 1 … 4), length of the output, of the reference
        chrF: for n = 1 … 6 the character n-grams of the output, of the reference, and of both
        TER:  edits, words of the reference

    Papineni et al. 2002, §2.3 (papers.bib: papineni2002bleu); Popović 2015, eq. 1 (papers.bib:
    popovic2015chrf); Snover et al. 2006, §3 (papers.bib: snover2006study). BLEU and TER are counted by
    sacrebleu; chrF here, for sacrebleu keeps its counts to itself. The values are those of `overlap`, to
    rounding.
    """
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


EPSILON = 0.1


def self_bleu(texts: Sequence[Tokens], n: int = 4) -> float:
    """The mean BLEU, from 0 to 1, of each text against all others.

    Self-BLEU: how much the texts of one system resemble each other; high is bland.

        self-BLEU(X) = (1/|X|) Σ_{x∈X} BLEU(x; references X ∖ {x})

    Zhu et al. 2018, "Texygen" (papers.bib: zhu2018texygen); BLEU is Papineni et al. 2002's (papers.bib:
    papineni2002bleu), of one sentence, with all other texts as references: n-grams are clipped at the most
    that any one of them has, and the length penalised against the nearest of theirs. An order of n-grams
    without a match counts ε = 0.1 matches, as Texygen has it; orders that a text is too short for do not
    count; a text that shares no token with the others, or has none, scores 0.

    A text is any sequence of hashable tokens, as for distinct-n. Costs one pass over the n-grams, not one for
    each pair of texts: for every n-gram the two texts that have it most often are kept.
    """
    check_texts(texts)
    n = as_whole("n", n, at_least=1, advice="4 is usual.")
    if len(texts) < 2:
        raise ValueError("self-BLEU compares a text with the others: give two texts or more")
    counted = [[Counter(ngrams(text, order)) for order in range(1, n + 1)] for text in texts]
    most = [_two_most([of_text[order] for of_text in counted]) for order in range(n)]
    lengths = sorted(map(len, texts))
    return sum(
        _self_bleu(place, grams, len(texts[place]), most, lengths) for place, grams in enumerate(counted)
    ) / len(texts)


Most = dict[Hashable, tuple[int, int, int]]
"""n-gram → the most that a text has of it, which text that is, and the most of any other."""


def _two_most(counters: Sequence[Counter[tuple[Hashable, ...]]]) -> Most:
    found: Most = {}
    for place, counter in enumerate(counters):
        for gram, count in counter.items():
            best, whose, second = found.get(gram, (0, -1, 0))
            if count > best:
                found[gram] = (count, place, best)
            elif count > second:
                found[gram] = (best, whose, count)
    return found


def _self_bleu(
    place: int,
    grams: Sequence[Counter[tuple[Hashable, ...]]],
    length: int,
    most: Sequence[Most],
    lengths: Sequence[int],
) -> float:
    """Of one text against all others."""
    logs, any_match = list[float](), False
    for counter, of_order in zip(grams, most, strict=True):
        if not counter:
            break
        matches = 0
        for gram, count in counter.items():
            best, whose, second = of_order[gram]
            matches += min(count, second if whose == place else best)
        any_match |= matches > 0
        logs.append(log((matches or EPSILON) / counter.total()))
    if not any_match:
        return 0.0
    nearest = _nearest(length, lengths)
    penalty = min(0.0, 1 - nearest / length)
    return exp(penalty + sum(logs) / len(logs))


def _nearest(length: int, lengths: Sequence[int]) -> int:
    """The length nearest to this one among all others; of two equally near, the shorter."""
    at = bisect_left(lengths, length)
    if at + 1 < len(lengths) and lengths[at + 1] == length:
        return length
    around = [*lengths[max(at - 1, 0) : at], *lengths[at + 1 : at + 2]]
    return min(around, key=lambda it: (abs(it - length), it))


def length_ratio(outputs: Sequence[Tokens], references: Sequence[Tokens]) -> SummedMeasure:
    """Of texts as tokens: words, ids, or the characters of strings. `.value` is the ratio.

    Length ratio: how long the outputs are, for each token of their references.

        ratio = Σᵢ |outputᵢ| / Σᵢ |referenceᵢ|

    What BLEU's brevity penalty is made of (Papineni et al. 2002, §2.2; papers.bib: papineni2002bleu). Below 1
    the outputs are too short, as those of wide beams (Koehn & Knowles 2017; papers.bib: koehn2017six).
    """
    check_texts(outputs)
    check_texts(references)
    if len(outputs) != len(references):
        raise ValueError(
            f"{len(outputs)} outputs cannot be compared with {len(references)} references: give one for each"
        )
    if not any(map(len, references)):
        raise ValueError("all references are empty: there is no length to compare with")
    return ratio_of(list(map(len, outputs)), list(map(len, references)))
