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
from statistics import linear_regression
from typing import Any, Literal

from unspool.arguments import as_int, items, one_of, shown

Tokens = Sequence[Hashable]
ZIPF_TOP = 5_000


def ngrams(tokens: Tokens, n: int) -> list[tuple[Hashable, ...]]:
    """Return all n-grams in order."""
    if not isinstance(tokens, Sequence):
        raise TypeError(f"tokens is {shown(tokens)}, but must be a list of tokens or a string")
    n = as_int("n", n, at_least=1, advice="It is the length of an n-gram.")
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
    one_of("level", level, ("corpus", "text"))
    if level == "text":
        return sum(distinct_n([tokens], n) for tokens in texts) / len(texts)
    length = sum(len(tokens) for tokens in texts)
    return len({gram for tokens in texts for gram in ngrams(tokens, n)}) / length if length else 0.0


def zipf_coefficient(texts: Sequence[Tokens]) -> float:
    """Fall of log frequency with log rank: about 1 in natural text, 0 if all tokens are equally frequent."""
    check_texts(texts)
    counts = Counter(token for tokens in texts for token in tokens).most_common(ZIPF_TOP)
    if len(counts) < 2:
        raise ValueError(f"Zipf's coefficient needs two different tokens or more; found {len(counts)}")
    ranks = [log(rank) for rank in range(1, len(counts) + 1)]
    return -linear_regression(ranks, [log(count) for _, count in counts]).slope


def check_texts(
    texts: Any, name: str = "texts", like: Sequence[Any] | None = None, *, strings: bool = False
) -> None:
    """Raise unless `texts` is a non-empty list of texts (or strings), one for each output in `like`."""
    given = items(name, texts, "a list of texts")
    if not hasattr(texts, "__getitem__"):  # a generator would be empty now
        raise TypeError(f"{name} is {shown(texts)}, but must be a list of texts")
    if like is not None and len(given) != len(like):
        raise ValueError(f"{len(like)} outputs but {len(given)} {name}: give one for each output")
    if not given:
        raise ValueError(f"{name} is empty: give at least one")
    for index, text in enumerate(given):
        if not isinstance(text, str if strings else Sequence):
            wanted = "a string" if strings else "a list of tokens or a string"
            raise TypeError(f"{name} {index} is {shown(text)}, but must be {wanted}")
