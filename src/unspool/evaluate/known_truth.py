"""Compare a decoder with the true distribution of an artificial language.

    support:  precision and recall of the kept tokens (`exact_support`)
    KL(p* ‖ q) = Σ p* log(p*/q),   KL(q ‖ p*),   TV(q, p*) = ½ Σ |q − p*|      means over contexts

q is the distribution that the decoder draws from (`exact_support.NextTokens`), p* the true next-token
distribution, and the contexts are all positions of sentences of the language. If a decoder rejects a possible
token, KL(p* ‖ q) is infinite; if it keeps an impossible one, KL(q ‖ p*) is. TV is always finite.

Kullback & Leibler 1951 (papers.bib: kullback1951information); Finlayson et al. 2024, §3, for the question
(papers.bib: finlayson2024closing).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp, fsum, isfinite, log
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unspool.arguments import MAX_INT, as_int, ids, items, shown
from unspool.data.known_languages.known_language import KnownLanguage
from unspool.decode.lockstep import check_model
from unspool.decode.run import Run
from unspool.decode.score import read_steps
from unspool.decode.search import Greedy, Sample
from unspool.evaluate.exact_support import Support, next_tokens, support
from unspool.evaluate.teacher_forcing import fitting
from unspool.interfaces import StepModel

ROWS = 64


@dataclass(frozen=True)
class DecoderTruth:
    """Means over contexts."""

    support: Support
    kl: float
    """KL(p* ‖ q) in nats."""
    reverse_kl: float
    """KL(q ‖ p*) in nats."""
    total_variation: float
    contexts: int


def decoder_truth(
    decoder: Greedy | Sample,
    model: StepModel,
    language: KnownLanguage[Any],
    *,
    sentences: int = 100,
    seed: int = 0,
) -> DecoderTruth:
    """Compare q with p* at every position of sentences of the language, whose tokens the model must use."""
    check_language(model, language)
    sentences = as_int("sentences", sentences, at_least=1, advice="100 is usual.")
    seed = as_int("seed", seed, at_least=0, advice="The same seed gives the same sentences.")
    rng = Random(seed)
    rows = [language.sample(rng) for _ in range(sentences)]
    max_length = fitting(model, None, MAX_INT) - 1
    rows = [row[:max_length] for row in rows]
    chunks = [
        chunk
        for first in range(0, sentences, ROWS)
        for chunk in _read_positions(decoder, model, language, rows[first : first + ROWS])
    ]
    kept_CV, q_CV, p_CV, true_CV = (torch.cat(each) for each in zip(*chunks, strict=True))
    return DecoderTruth(
        support=support(kept_CV, p_CV, true_CV),
        kl=divergence(true_CV, q_CV),
        reverse_kl=divergence(q_CV, true_CV),
        total_variation=float((q_CV - true_CV).abs().sum(dim=1).mean() / 2),
        contexts=len(q_CV),
    )


def divergence(p_CV: Tensor, q_CV: Tensor) -> float:
    """Mean KL(p ‖ q) of rows, with 0 · log 0 = 0."""
    parts_CV = torch.where(p_CV > 0, p_CV * (p_CV.log() - q_CV.log()), 0.0)
    return float(parts_CV.sum(dim=1).mean())


def check_language(model: StepModel, language: KnownLanguage[Any]) -> None:
    """Raise unless the model is a language model with the tokens of the language."""
    check_model(model)
    if not isinstance(language, KnownLanguage):
        raise TypeError(f"language is {shown(language)}, but must be one of unspool.data.known_languages")
    if model.is_encoder_decoder or language.vocab_size != model.vocab_size:
        raise ValueError(
            f"expected a language model with the {language.vocab_size} tokens of the language, found "
            f"{'an encoder–decoder' if model.is_encoder_decoder else 'a model'} with {model.vocab_size}"
        )


@torch.inference_mode()
def _read_positions(
    decoder: Greedy | Sample, model: StepModel, language: KnownLanguage[Any], rows: Sequence[Sequence[int]]
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Yield, position by position, the kept tokens, q, p̂ and p* of the sentences that continue."""
    longest = max(map(len, rows)) + 1
    job = Run(model, [(language.bos,)] * len(rows), decoder, max_new_tokens=longest, seed=0).job
    distributions = next_tokens(decoder, model, job)
    states, hypotheses = [language.start() for _ in rows], job.hypotheses()
    for position, (active, step) in enumerate(read_steps(model, job.prompts, rows)):
        kept_NV, q_NV = distributions(step, [hypotheses[row] for row in active])
        true_NV = torch.from_numpy(np.stack([language.probabilities(states[row]) for row in active]))
        yield kept_NV.cpu(), q_NV.double().exp().cpu(), step.logp_NV.double().exp().cpu(), true_NV
        for n, row in enumerate(active):
            if len(rows[row]) > position:
                token = rows[row][position]
                states[row] = language.after(states[row], token)
                logp, score = float(step.logp_NV[n, token]), float(q_NV[n, token])
                hypotheses[row] = hypotheses[row].extend(token, logp, score, job)


@dataclass(frozen=True)
class TextTruth:
    """Comparison of whole texts with an artificial language.

        precision = share of the texts with p*(y) > 0
        recall    = Σ p*(y) over the different texts y
        TV        = 1 − Σ_y min(q(y), p*(y)),      q(y) the share of the texts that are y

    It works for texts of any decoder, including beam search and MBR. All three are exact for the given texts.
    For few texts TV is large even for a perfect model: compare it with that of as many sentences of the
    language.

    After the token precision and recall of Finlayson et al. 2024, §3 (papers.bib: finlayson2024closing).
    """

    precision: float
    """Share of the texts that are possible in the language."""
    recall: float
    """Total probability of the distinct texts in the language."""
    total_variation: float
    """TV between the texts and the language: 0 equal, 1 nothing in common."""
    reverse_kl: float
    """KL(q ‖ p*) in nats; infinite if a text is impossible."""
    logp: float
    """Mean log p* of the possible texts; −∞ if no text is possible."""
    texts: int
    different: int


def text_truth(texts: Sequence[Sequence[int]], language: KnownLanguage[Any]) -> TextTruth:
    """Compare texts, given as token ids, with the language; BOS and EOS are removed.

    A text that was cut before its end is not possible in the language: generate long enough texts.
    """
    if not isinstance(language, KnownLanguage):
        raise TypeError(f"language is {shown(language)}, but must be one of unspool.data.known_languages")
    rows = [
        _strip_ends(ids("texts", text, empty=True), language) for text in items("texts", texts, "token ids")
    ]
    if not rows:
        raise ValueError("texts is empty: give at least one")
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


def _strip_ends(text: tuple[int, ...], language: KnownLanguage[Any]) -> tuple[int, ...]:
    start = 1 if text[:1] == (language.bos,) else 0
    return text[start:-1] if text[-1:] == (language.eos,) else text[start:]
