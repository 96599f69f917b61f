"""Whole texts beside the truth: can the language speak them, and how much of it do they cover?

    precision = share of the texts with p*(y) > 0
    recall    = Σ p*(y) over the different texts y
    TV        = 1 − Σ_y min(q(y), p*(y)),      q(y) the share of the texts that are y

For texts of any decoder, beams and MBR included. All three are exact for the texts given. Of few texts the
last says little: even a perfect speaker's differ from the truth until each sentence has come often enough, so
that it is best set beside that of as many sentences of the language itself.

After the precision and recall of Finlayson et al. 2024, §3, of tokens (papers.bib: finlayson2024closing).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, fsum, isfinite, log
from typing import Any

from unspool.data.languages.known_language import KnownLanguage
from unspool.decode.arguments import ids, items, shown


@dataclass(frozen=True)
class TextTruth:
    """What texts have in common with a language."""

    precision: float
    """The share of the texts that the language can speak."""
    recall: float
    """The probability, in the language, of all different texts together."""
    total_variation: float
    """Between the texts and the language: 0 the same, 1 nothing in common."""
    reverse_kl: float
    """KL(q ‖ p*) in nats, infinite where a text is impossible."""
    logp: float
    """log p* of a possible text, on average; −∞ where none is possible."""
    texts: int
    different: int


def text_truth(texts: Sequence[Sequence[int]], language: KnownLanguage[Any]) -> TextTruth:
    """Of texts as the language's token ids; BOS in front and EOS behind are no part of them.

    A text that was cut before its end is none that the language speaks: generate long enough ones.
    """
    if not isinstance(language, KnownLanguage):
        raise TypeError(f"language is {shown(language)}, but must be one of unspool.data.languages")
    rows = [_bare(ids("texts", text, empty=True), language) for text in items("texts", texts, "token ids")]
    if not rows:
        raise ValueError("there is no text to look at: give at least one")
    counts = Counter(rows)
    true = {text: language.log_prob(text) for text in counts}
    share = {text: count / len(rows) for text, count in counts.items()}
    possible = [text for text in counts if isfinite(true[text])]
    return TextTruth(
        precision=fsum(share[text] for text in possible),
        recall=fsum(exp(true[text]) for text in possible),
        total_variation=1 - fsum(min(share[text], exp(true[text])) for text in possible),
        reverse_kl=fsum(share[text] * (log(share[text]) - true[text]) for text in counts),
        logp=(
            fsum(share[text] * true[text] for text in possible) / fsum(share[text] for text in possible)
            if possible
            else float("-inf")
        ),
        texts=len(rows),
        different=len(counts),
    )


def _bare(text: tuple[int, ...], language: KnownLanguage[Any]) -> tuple[int, ...]:
    begin = 1 if text[:1] == (language.bos,) else 0
    return text[begin:-1] if text[-1:] == (language.eos,) else text[begin:]
