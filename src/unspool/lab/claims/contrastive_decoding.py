"""Claim: contrastive decoding, which subtracts a weak model, repeats less at equal quality.

    score(i) = log p_strong(i) − log p_weak(i)   if p_strong(i) ≥ α max p_strong, else −∞

He He's lecture, "Contrastive decoding"; Li et al. 2023 (papers.bib: li2023contrastive).
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import unspool as us
from unspool.data.known_languages import ZipfMarkov
from unspool.evaluate.known_truth import text_truth
from unspool.lab.claim import Claim, Numbers, Progress, lecture
from unspool.lab.claims.degeneration import LANGUAGE, repetition
from unspool.lab.small_models import TRANSFORMER_LM, language, train_model
from unspool.plots.seeds import bars, chart

WEAK = {**TRANSFORMER_LM, "width": 8, "heads": 2, "layers": 1, "inner_width": 16}


def prefixes(truth: ZipfMarkov, count: int, seed: int) -> list[tuple[int, ...]]:
    """Return the first words of longer sentences."""
    rng = Random(seed)
    found: list[tuple[int, ...]] = []
    while len(found) < count:
        said = truth.sample(rng)
        if len(said) > 4:
            found.append((truth.bos, *said[: rng.randint(1, 3)]))
    return found


def completed(model: Any, truth: ZipfMarkov, starts: Sequence[tuple[int, ...]]) -> tuple[float, int]:
    """Return the shares of possible and of different greedy completions."""
    outs = us.generate(model, starts, us.Greedy(), max_new_tokens=60, batch_size=128)
    found = text_truth([(*start, *out.tokens) for start, out in zip(starts, outs, strict=True)], truth)
    return found.precision, len({out.tokens for out in outs})


def measure(seed: int, quick: bool, progress: Progress) -> Numbers:
    """Measure repetition in English, and possible sentences in an artificial language."""
    tokens, starts = (60, 40) if quick else (128, 300)
    strong, never = us.load("bible"), us.MinLength(tokens)
    contrast = us.Contrast(strong, us.load("bible-weak"))
    found = {
        "strong, greedy: repetition": repetition(strong, us.Greedy(never), 1, tokens, seed),
        "contrast, greedy: repetition": repetition(contrast, us.Greedy(never), 1, tokens, seed),
        "strong, top-p 0.9: repetition": repetition(strong, us.Sample(never, us.TopP(0.9)), 1, tokens, seed),
    }
    progress(0.3)
    truth, data = ZipfMarkov(**LANGUAGE), language("zipf_markov", seed, 3000, **LANGUAGE)
    able = train_model(data, TRANSFORMER_LM, 40 if quick else 300, seed)
    poor = train_model(data, WEAK, 20 if quick else 100, seed)
    begun = prefixes(truth, starts, seed)
    for name, model in {"strong": able, "weak": poor, "contrast": us.Contrast(able, poor)}.items():
        found[f"{name}, greedy: possible sentences"], different = completed(model, truth, begun)
        found[f"{name}, greedy: different endings"] = different / len(begun)
    return found


CLAIM = Claim(
    name="contrastive_decoding",
    statement="Penalising tokens that are probable to a weaker model lowers repetition without loss of "
    "quality.",
    source=lecture("Contrastive Decoding", "li2023contrastive"),
    measured="Repetition: seq-rep-4 of 16 greedy continuations of 128 tokens by the built-in `bible` alone, "
    "and with `bible-weak` subtracted. Quality: of 300 starts of sentences of an artificial language, how "
    "many greedy completions are possible, by a trained Transformer alone and with a weaker one subtracted.",
    criterion={
        "repetition is at most 0.7 of the strong model's": lambda n: (
            n["contrast, greedy: repetition"] <= 0.7 * n["strong, greedy: repetition"]
        ),
        "at most 0.05 fewer of the sentences are possible": lambda n: (
            n["contrast, greedy: possible sentences"] >= n["strong, greedy: possible sentences"] - 0.05
        ),
    },
    measure=measure,
    draw=chart(
        bars(
            {f"{it}: repetition": it for it in ("strong, greedy", "contrast, greedy", "strong, top-p 0.9")},
            "4-grams that were there before",
        ),
        bars(
            {f"{it}, greedy: possible sentences": it for it in ("strong", "contrast", "weak")},
            "completed sentences that are possible",
            xlim=(0, 1),
        ),
    ),
    limits="The repetition of the built-in models does not depend on the seed. The paper searches by beams; "
    "greedy search shows the same contrast.",
)
