"""A decoder beside the truth: what it may say next, and how often, against a language whose truth is known.

    support:  does it keep the tokens that can come, and only those (`exact_support`)
    KL(p* ‖ q) = Σ p* log(p*/q),   KL(q ‖ p*),   TV(q, p*) = ½ Σ |q − p*|      means over contexts

q is what the decoder draws from, exactly (`kept_tokens`), p* the language's own next-token distribution, and
the contexts are all places of sentences of the language. A decoder that cuts a token that can come has an
infinite KL(p* ‖ q); one that keeps a token that cannot, an infinite KL(q ‖ p*); TV is finite always.

The measures are Kullback & Leibler 1951's (papers.bib: kullback1951information); the question is Finlayson et
al. 2024's, §3 (papers.bib: finlayson2024closing).
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

from unspool.data.known_languages.known_language import KnownLanguage
from unspool.decode.arguments import LARGEST, as_whole, ids, items, shown
from unspool.decode.combine.lockstep import check_model
from unspool.decode.run import Run
from unspool.decode.search import Greedy, Sample
from unspool.evaluate.exact_support import Support, next_tokens, support
from unspool.evaluate.teacher_forcing import fitting
from unspool.interfaces import StepModel

ROWS = 64
"""Sentences that are read side by side."""


@dataclass(frozen=True)
class DecoderTruth:
    """The means over contexts."""

    support: Support
    kl: float
    """KL(p* ‖ q) in nats: what the truth loses by being coded as the decoder speaks."""
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
    """Of a model whose tokens are the language's, at every place of so many sentences of it."""
    check_language(model, language)
    sentences = as_whole("sentences", sentences, at_least=1, advice="100 is usual.")
    seed = as_whole("seed", seed, at_least=0, advice="The same seed gives the same sentences.")
    dice = Random(seed)
    said = [language.sample(dice) for _ in range(sentences)]
    most = fitting(model, None, LARGEST) - 1
    said = [row[:most] for row in said]
    parts = [
        part
        for first in range(0, sentences, ROWS)
        for part in _walk(decoder, model, language, said[first : first + ROWS])
    ]
    kept_CV, q_CV, p_CV, true_CV = (torch.cat(each) for each in zip(*parts, strict=True))
    return DecoderTruth(
        support=support(kept_CV, p_CV, true_CV),
        kl=divergence(true_CV, q_CV),
        reverse_kl=divergence(q_CV, true_CV),
        total_variation=float((q_CV - true_CV).abs().sum(dim=1).mean() / 2),
        contexts=len(q_CV),
    )


def divergence(p_CV: Tensor, q_CV: Tensor) -> float:
    """KL(p ‖ q), the mean over rows, in which 0 · log 0 is 0."""
    parts_CV = torch.where(p_CV > 0, p_CV * (p_CV.log() - q_CV.log()), 0.0)
    return float(parts_CV.sum(dim=1).mean())


def check_language(model: StepModel, language: KnownLanguage[Any]) -> None:
    """Refuse what is no model, no language, or a model of other tokens."""
    check_model(model)
    if not isinstance(language, KnownLanguage):
        raise TypeError(f"language is {shown(language)}, but must be one of unspool.data.known_languages")
    if model.is_encoder_decoder or language.vocab_size != model.vocab_size:
        raise ValueError(
            f"the model {'answers' if model.is_encoder_decoder else 'continues'} texts of {model.vocab_size} "
            "tokens, "
            f"the language has {language.vocab_size}: give a language model that learnt this language"
        )


@torch.inference_mode()
def _walk(
    decoder: Greedy | Sample,
    model: StepModel,
    language: KnownLanguage[Any],
    rows: Sequence[Sequence[int]],
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Place after place: what is kept, q, p̂ and p* of the sentences that go on."""
    longest = max(map(len, rows)) + 1
    job = Run(model, [(language.bos,)] * len(rows), decoder, max_new_tokens=longest, seed=0).job
    ready = next_tokens(decoder, model, job)
    live = [(row, language.start(), path) for row, path in zip(rows, job.hypotheses(), strict=True)]
    step, state = model.start(job.prompts)
    for place in range(longest):
        kept_NV, q_NV = ready(step, [path for _, _, path in live])
        true_NV = torch.from_numpy(np.stack([language.chances(truth) for _, truth, _ in live]))
        yield kept_NV.cpu(), q_NV.double().exp().cpu(), step.logp_NV.double().exp().cpu(), true_NV
        stay = [n for n, (row, _, _) in enumerate(live) if len(row) > place]
        if not stay:
            return
        tokens = [live[n][0][place] for n in stay]
        live = [
            (
                live[n][0],
                language.after(live[n][1], token),
                live[n][2].extend(token, float(step.logp_NV[n, token]), float(q_NV[n, token]), job),
            )
            for n, token in zip(stay, tokens, strict=True)
        ]
        if len(stay) < len(step.logp_NV):
            state = state.select(torch.tensor(stay, device=step.logp_NV.device))
        step, state = model.step(state, torch.tensor(tokens, device=step.logp_NV.device))


@dataclass(frozen=True)
class TextTruth:
    """What texts have in common with a language.

    Whole texts beside the truth: can the language speak them, and how much of it do they cover?

        precision = share of the texts with p*(y) > 0
        recall    = Σ p*(y) over the different texts y
        TV        = 1 − Σ_y min(q(y), p*(y)),      q(y) the share of the texts that are y

    For texts of any decoder, beams and MBR included. All three are exact for the texts given. Of few texts
    the last says little: even a perfect speaker's differ from the truth until each sentence has come often
    enough, so that it is best set beside that of as many sentences of the language itself.

    After the precision and recall of Finlayson et al. 2024, §3, of tokens (papers.bib: finlayson2024closing).
    """

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
        raise TypeError(f"language is {shown(language)}, but must be one of unspool.data.known_languages")
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
