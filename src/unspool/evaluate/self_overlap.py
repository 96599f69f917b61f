"""Self-BLEU: how much the texts of one system resemble each other; high is bland.

    self-BLEU(X) = (1/|X|) Σ_{x∈X} BLEU(x; references X ∖ {x})

Zhu et al. 2018, "Texygen" (papers.bib: zhu2018texygen); BLEU is Papineni et al. 2002's
(papers.bib: papineni2002bleu), of one sentence, with all other texts as references: n-grams are clipped at
the most that any one of them has, and the length penalised against the nearest of theirs. An order of
n-grams without a match counts ε = 0.1 matches, as Texygen has it; orders that a text is too short for do not
count; a text that shares no token with the others, or has none, scores 0.

A text is any sequence of hashable tokens, as for distinct-n. Costs one pass over the n-grams, not one for
each pair of texts: for every n-gram the two texts that have it most often are kept.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Sequence
from math import exp, log

from unspool.decode.arguments import as_whole
from unspool.evaluate.diversity import Tokens, check_texts, ngrams

EPSILON = 0.1


def self_bleu(texts: Sequence[Tokens], n: int = 4) -> float:
    """The mean BLEU, from 0 to 1, of each text against all others."""
    check_texts(texts)
    n = as_whole("n", n, at_least=1, advice="4 is usual.")
    if len(texts) < 2:
        raise ValueError("self-BLEU compares a text with the others: give two texts or more")
    counted = [[Counter(ngrams(text, order)) for order in range(1, n + 1)] for text in texts]
    most = [_two_most([of_text[order] for of_text in counted]) for order in range(n)]
    lengths = sorted(map(len, texts))
    return sum(
        _bleu(place, grams, len(texts[place]), most, lengths) for place, grams in enumerate(counted)
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


def _bleu(
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
