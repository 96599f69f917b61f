"""Claim: argmax decoding repeats itself, sampling is incoherent, and truncated sampling is neither.

    ŷ = argmax …      ŷ_t ~ p̂      ŷ_t ~ p̂ cut to its nucleus

He He's lecture, "Is argmax the right decoding objective?" to "Truncated sampling"; Holtzman et al. 2020
(papers.bib: holtzman2020curious).
"""

from __future__ import annotations

from typing import Any

import unspool as us
from unspool.data.known_languages import KnownLanguage, ZipfMarkov
from unspool.evaluate.diversity import seq_rep_n
from unspool.evaluate.known_truth import TextTruth, text_truth
from unspool.lab.claim import Claim, Numbers, Progress, lecture, tracked
from unspool.lab.small_models import OPENINGS, TRANSFORMER_LM, language, train_model
from unspool.plots.seeds import bars, chart

LANGUAGE: dict[str, Any] = {"word_count": 60, "order": 1, "branching": 8}
"""Each of 60 words has one to eight successors."""
NAMES = ("greedy", "sampling", "top-p 0.9", "top-k 20")


def repetition(model: Any, decoder: Any, samples: int, tokens: int, seed: int) -> float:
    """Return seq-rep-4 of continuations of exactly `tokens` tokens."""
    outs = us.generate(model, OPENINGS * samples, decoder, max_new_tokens=tokens, seed=seed)
    return seq_rep_n([out.tokens for out in outs], 4)


def sentences(model: Any, truth: KnownLanguage[Any], decoder: Any, count: int, seed: int) -> TextTruth:
    """Generate sentences and compare them with the language."""
    prompts = [[truth.bos]] * count
    outs = us.generate(model, prompts, decoder, max_new_tokens=60, seed=seed, batch_size=128)
    return text_truth([out.tokens for out in outs], truth)


def measure(seed: int, quick: bool, progress: Progress) -> Numbers:
    """Measure repetition in English, and possible sentences in an artificial language."""
    samples, tokens, count = (1, 60, 60) if quick else (4, 128, 500)
    model, never = us.load("bible"), us.MinLength(tokens)
    decoders: list[tuple[Any, Any]] = [
        (us.Greedy(never), us.Greedy()),
        (us.Sample(never), us.Sample()),
        (us.Sample(never, us.TopP(0.9)), us.Sample(us.TopP(0.9))),
        (us.Sample(never, us.TopK(20)), us.Sample(us.TopK(20))),
    ]
    truth = ZipfMarkov(**LANGUAGE)
    trained = train_model(
        language("zipf_markov", seed, 3000, **LANGUAGE), TRANSFORMER_LM, 40 if quick else 300, seed
    )
    found: dict[str, float] = {}
    for name, (open_ended, whole) in tracked(zip(NAMES, decoders, strict=True), progress):
        found[f"{name}: repetition"] = repetition(model, open_ended, samples, tokens, seed)
        result = sentences(trained, truth, whole, count, seed)
        found[f"{name}: impossible sentences"] = 1 - result.precision
        found[f"{name}: different sentences"] = result.different / result.texts
    return found


CLAIM = Claim(
    name="degeneration",
    statement="Argmax decoding repeats itself, pure sampling is incoherent, and truncated sampling balances "
    "the two.",
    source=lecture("Is argmax the right decoding objective? to Truncated sampling", "holtzman2020curious"),
    measured="Repetition: the share of repeated 4-grams in 64 continuations of "
    "128 tokens by the built-in model `bible`. Incoherence: the share of 500 sentences that are impossible, "
    "from a Transformer that has learnt an artificial language in which few words can follow each other.",
    criterion={
        "greedy search repeats: at least 0.2, and five times as much as sampling": lambda n: (
            n["greedy: repetition"] >= max(0.2, 5 * n["sampling: repetition"])
        ),
        "sampling is incoherent: at least 1.5 times as many impossible sentences as top-p": lambda n: (
            n["sampling: impossible sentences"] >= 1.5 * n["top-p 0.9: impossible sentences"]
        ),
        "top-p repeats at most half as much as greedy search, and has at least half as many different "
        "sentences as sampling": lambda n: (
            n["top-p 0.9: repetition"] <= 0.5 * n["greedy: repetition"]
            and n["top-p 0.9: different sentences"] >= 0.5 * n["sampling: different sentences"]
        ),
    },
    measure=measure,
    draw=chart(
        bars({f"{name}: repetition": name for name in NAMES}, "4-grams that were there before"),
        bars({f"{name}: impossible sentences": name for name in NAMES}, "sentences that are impossible"),
        sharey=True,
    ),
)
