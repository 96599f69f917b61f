"""Diversity and repetition of texts: rep-n, distinct-n and Zipf's coefficient.

    rep-n(x)     = 1 − |unique n-grams of x| / |n-grams of x|
    seq-rep-n(X) = (1/|X|) Σ_{x∈X} rep-n(x)
    distinct-n(X), corpus level   = |unique n-grams of X| / Σ_{x∈X} |x|
    distinct-n(X), text level     = (1/|X|) Σ_{x∈X} |unique n-grams of x| / |x|
    zipf(X)      = s of the least-squares line  log frequency = b − s·log rank,   rank ≤ 5,000

Welleck et al. 2020, "Evaluation metrics" (seq-rep-n; papers.bib: welleck2020unlikelihood); Li et al. 2016,
section 5 (distinct-1 and -2, scaled by the number of tokens; papers.bib: li2016diversity); Holtzman et al.
2020, section 5.1 (Zipf; papers.bib: holtzman2020curious).

A text is any sequence of hashable tokens: ids, words, characters. Compare measures only for the same
tokenization. distinct-n at the corpus level is Li et al.'s; it falls as texts are added, so compare it only
for corpora of the same size. At the text level it depends only on the length of each text. Zipf's coefficient
is fitted to the 5,000 most frequent tokens, because the tail of rare tokens grows with the corpus.

Differs from the papers: rep-n is 0 for texts shorter than n tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from math import log
from typing import Literal

Tokens = Sequence[Hashable]
ZIPF_TOP = 5_000


def ngrams(tokens: Tokens, n: int) -> list[tuple[Hashable, ...]]:
    """Return all n-grams in order."""
    if not isinstance(tokens, Sequence):
        raise TypeError(f"tokens is {tokens!r:.60}, but must be a list of tokens or a string")
    if not isinstance(n, int) or n < 1:
        raise ValueError(f"n is {n!r}, but must be a whole number, at least 1")
    return [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]


def rep_n(tokens: Tokens, n: int = 4) -> float:
    """Share of the n-grams of a text that occurred before in it."""
    grams = ngrams(tokens, n)
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def seq_rep_n(texts: Sequence[Tokens], n: int = 4) -> float:
    """Mean `rep_n` of texts."""
    check_texts(texts)
    return sum(rep_n(tokens, n) for tokens in texts) / len(texts)


def distinct_n(texts: Sequence[Tokens], n: int = 1, *, level: Literal["corpus", "text"] = "corpus") -> float:
    """Distinct n-grams / tokens, of all texts together or averaged over texts."""
    check_texts(texts)
    if not isinstance(level, str) or level not in ("corpus", "text"):
        raise ValueError(f"level is {level!r:.40}, but must be 'corpus' or 'text'")
    if level == "text":
        return sum(distinct_n([tokens], n) for tokens in texts) / len(texts)
    length = sum(len(tokens) for tokens in texts)
    return len({gram for tokens in texts for gram in ngrams(tokens, n)}) / length if length else 0.0


def zipf_coefficient(texts: Sequence[Tokens], *, top: int = ZIPF_TOP) -> float:
    """Slope of log frequency over log rank: about 1 in natural text, 0 if all tokens are equally frequent.

    Fitted to the `top` most frequent tokens.
    """
    check_texts(texts)
    if not isinstance(top, int) or isinstance(top, bool) or top < 2:
        raise ValueError(f"top is {top!r:.40}, but must be a whole number, at least 2")
    counts = sorted(Counter(token for tokens in texts for token in tokens).values(), reverse=True)[:top]
    if len(counts) < 2:
        raise ValueError(f"Zipf's coefficient needs two different tokens or more; found {len(counts)}")
    x = [log(rank) for rank in range(1, len(counts) + 1)]
    y = [log(count) for count in counts]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    covariance = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return -covariance / sum((a - mean_x) ** 2 for a in x)


def check_texts(texts: Sequence[Tokens]) -> None:
    """Raise unless `texts` is a non-empty list of texts."""
    if isinstance(texts, (str, bytes)):
        raise TypeError(f"texts is one string, {texts!r:.40}: give a list of texts, such as [text.split()]")
    if not isinstance(texts, Sequence):
        raise TypeError(f"texts is {texts!r:.60}, but must be a list of texts")
    if not texts:
        raise ValueError("texts is empty: give at least one text")
    for index, text in enumerate(texts):
        if not isinstance(text, Sequence):
            raise TypeError(f"text {index} is {text!r:.40}, but must be a list of tokens or a string")
