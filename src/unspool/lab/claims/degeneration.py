"""Claims about degeneration: repetition, incoherence, the likelihood trap, large beams, and remedies."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from statistics import fmean
from typing import Any

import unspool as us
from unspool.data.known_languages import ZipfMarkov
from unspool.data.known_languages.known_language import TrueModel
from unspool.evaluate.known_truth import text_truth
from unspool.lab.claim import LECTURE, Numbers, Progress, claim, points, tracked
from unspool.lab.small_models import (
    PASSAGES,
    TRANSFORMER_LM,
    TRANSFORMER_SEQ2SEQ,
    continue_texts,
    differences,
    excess_loss,
    held_out,
    language,
    prompts_of,
    repetition,
    sample_sentences,
    task,
    train_model,
)
from unspool.plots.seeds import bars, chart, lines

LANGUAGE: dict[str, Any] = {"word_count": 60, "order": 1, "branching": 8}
"""Each of 60 words has one to eight successors."""


# ---- degeneration

REPEATING: dict[str, Any] = {
    "greedy": us.Greedy,
    "sampling": us.Sample,
    "top-p 0.9": lambda never: us.Sample(never, us.TopP(0.9)),
    "top-k 20": lambda never: us.Sample(never, us.TopK(20)),
}


@claim(
    "Argmax decoding repeats itself; sampling does not.",
    source=f"{LECTURE}, Is argmax the right decoding objective?",
    measured="The built-in model `bible` continues 16 prompts (an opening and 12 tokens sampled with the "
    "seed) by 128 tokens, with greedy search and with samplers. The share of repeated 4-grams in each text.",
    primary="share of repeated 4-grams, greedy search minus sampling, for each prompt",
    matters=0.1,
    unit="prompt",
    crossed=16,
    assumed=(0.35, 0.2),
    secondary=tuple(f"{name}: repetition" for name in REPEATING),
    draw=chart(bars([*REPEATING], "4-grams that were there before", "{}: repetition")),
)
def degeneration(seed: int, quick: bool, progress: Progress) -> Numbers:
    """ŷ_t = argmax p̂   against   ŷ_t ~ p̂.

    Holtzman et al. 2020 (papers.bib: holtzman2020curious).
    """
    tokens, model = (60 if quick else 128), us.load("bible")
    prompts = prompts_of(model, 4 if quick else 16, seed)
    found = {
        name: repetition(continue_texts(model, prompts, decoder, tokens, seed))
        for name, decoder in tracked(REPEATING.items(), progress)
    }
    means = {f"{name}: repetition": fmean(values) for name, values in found.items()}
    return {"effect": differences(found["greedy"], found["sampling"]), **means}


# ---- incoherent_sampling

SAMPLERS: dict[str, Any] = {
    "greedy": us.Greedy(),
    "sampling": us.Sample(),
    "top-p 0.9": us.Sample(us.TopP(0.9)),
    "top-k 20": us.Sample(us.TopK(20)),
}


@claim(
    "Pure sampling produces nonsensical sentences; truncating the distribution avoids them.",
    source=f"{LECTURE}, Sampling-based decoding; truncated sampling",
    measured="A Transformer learns an artificial language of 60 words, in which at most 8 words can follow a "
    "word, for 300 updates. Of 500 sentences by each decoder, the share that is impossible in the language.",
    primary="share of impossible sentences, pure sampling minus top-p 0.9",
    matters=0.05,
    assumed=(0.12, 0.04),
    secondary=(
        *(f"{name}: impossible sentences" for name in SAMPLERS),
        *(f"{name}: different sentences" for name in SAMPLERS),
    ),
    draw=chart(bars([*SAMPLERS], "sentences that are impossible", "{}: impossible sentences")),
)
def incoherent_sampling(seed: int, quick: bool, progress: Progress) -> Numbers:
    """ŷ_t ~ p̂   against   ŷ_t ~ p̂ cut to its nucleus.

    Holtzman et al. 2020 (papers.bib: holtzman2020curious).
    """
    drawn = {**LANGUAGE, "seed": seed}
    truth, data = ZipfMarkov(**drawn), language("zipf_markov", seed, **drawn)
    model = train_model(data, TRANSFORMER_LM, 40 if quick else 300, seed)
    numbers: dict[str, float] = {}
    for name, decoder in tracked(SAMPLERS.items(), progress):
        result = sample_sentences(model, truth, decoder, 60 if quick else 500, seed)
        numbers[f"{name}: impossible sentences"] = 1 - result.precision
        numbers[f"{name}: different sentences"] = result.different / result.texts
    gain = numbers["sampling: impossible sentences"] - numbers["top-p 0.9: impossible sentences"]
    return {"effect": gain, **numbers}


# ---- contrastive_decoding

CONTRASTED = (
    *("strong, beam 5", "contrast, beam 5", "strong, greedy", "contrast, greedy", "strong, top-p 0.9"),
)
WEAK = {**TRANSFORMER_LM, "width": 8, "heads": 2, "layers": 1, "inner_width": 16}


def prefixes(truth: ZipfMarkov, count: int, seed: int) -> list[tuple[int, ...]]:
    rng = Random(seed)
    starts: list[tuple[int, ...]] = []
    while len(starts) < count:
        sentence = truth.sample(rng)
        if len(sentence) > 4:
            starts.append((truth.bos, *sentence[: rng.randint(1, 3)]))
    return starts


def complete(model: Any, truth: ZipfMarkov, starts: Sequence[tuple[int, ...]]) -> tuple[float, int]:
    """Return the share of possible greedy completions, and the number of different ones."""
    outs = us.generate(model, starts, us.Greedy(), max_new_tokens=60, batch_size=128)
    texts = [(*start, *out.tokens) for start, out in zip(starts, outs, strict=True)]
    return text_truth(texts, truth).precision, len({out.tokens for out in outs})


@claim(
    "Penalising tokens that are probable to a weaker model lowers repetition.",
    source=f"{LECTURE}, Contrastive Decoding",
    measured="The built-in model `bible` continues 16 prompts (an opening and 12 tokens sampled with the "
    "seed) by 128 tokens, by beams of 5 and greedily, alone and with `bible-weak` subtracted: the share of "
    "repeated 4-grams in each text. Quality: of 300 starts of sentences of an artificial language, how many "
    "greedy completions are possible, by a trained Transformer alone and with a weaker one subtracted.",
    primary="share of repeated 4-grams with beam 5, strong model alone minus contrast, for each prompt",
    matters=0.1,
    unit="prompt",
    crossed=16,
    assumed=(0.35, 0.2),
    secondary=(
        "strong, beam 5: repetition",
        "contrast, beam 5: repetition",
        "strong, greedy: repetition",
        "contrast, greedy: repetition",
        "strong, greedy: possible sentences",
        "contrast, greedy: possible sentences",
    ),
    draw=chart(
        bars(CONTRASTED, "4-grams that were there before", "{}: repetition"),
        bars(
            ("strong", "contrast", "weak"),
            "completed sentences that are possible",
            "{}, greedy: possible sentences",
            xlim=(0, 1),
        ),
    ),
)
def contrastive_decoding(seed: int, quick: bool, progress: Progress) -> Numbers:
    """score(i) = log p_strong(i) − log p_weak(i)   if p_strong(i) ≥ α max p_strong, else −∞.

    Li et al. 2023 (papers.bib: li2023contrastive).
    """
    tokens, starts = (60, 40) if quick else (128, 300)
    strong = us.load("bible")
    prompts = prompts_of(strong, 4 if quick else 16, seed)
    models = {"strong": strong, "contrast": us.Contrast(strong, us.load("bible-weak"))}
    decoders = {**REPEATING, "beam 5": lambda never: us.Beam(5, never)}
    found = {
        name: repetition(continue_texts(models[model], prompts, decoders[decoder], tokens, seed))
        for name in CONTRASTED
        for model, decoder in [name.split(", ")]
    }
    numbers = {f"{name}: repetition": fmean(values) for name, values in found.items()}
    progress(0.3)
    drawn = {**LANGUAGE, "seed": seed}
    truth, data = ZipfMarkov(**drawn), language("zipf_markov", seed, **drawn)
    able = train_model(data, TRANSFORMER_LM, 40 if quick else 300, seed)
    poor = train_model(data, WEAK, 20 if quick else 100, seed)
    begun = prefixes(truth, starts, seed)
    for name, model in {"strong": able, "weak": poor, "contrast": us.Contrast(able, poor)}.items():
        numbers[f"{name}, greedy: possible sentences"], different = complete(model, truth, begun)
        numbers[f"{name}, greedy: different endings"] = different / len(begun)
    effect = differences(found["strong, beam 5"], found["contrast, beam 5"])
    return {"effect": effect, **numbers}


# ---- model_size

WIDTHS = (4, 16, 64)
DECODERS = {"sampling": us.Sample(), "top-p 0.9": us.Sample(us.TopP(0.9))}


@claim(
    "As models get better and larger, sampling-based decoding works better.",
    source=f"{LECTURE}, Decoding in practice",
    measured="Transformers of width 4, 16 and 64 learn an artificial language of 60 words for 300 updates. "
    "Of 500 sentences sampled from each, with and without truncation, the share that is possible.",
    primary="share of possible sentences by pure sampling, width 64 minus width 16",
    matters=0.1,
    assumed=(0.25, 0.1),
    secondary=("sampling, width 4: possible sentences", "truncation gains at width 16 minus at width 64"),
    draw=chart(
        lines(
            "width",
            [*DECODERS],
            "width of the model",
            "possible sentences",
            ticks=WIDTHS,
            xscale="log",
            ylim=(0, 1),
        )
    ),
)
def model_size(seed: int, quick: bool, progress: Progress) -> Numbers:
    """The share of sampled sentences with p* > 0, by the width of the model, on the same batches."""
    drawn = {**LANGUAGE, "seed": seed}
    truth, data = ZipfMarkov(**drawn), language("zipf_markov", seed, **drawn)
    excess: list[float] = []
    shares: dict[str, list[float]] = {name: [] for name in DECODERS}
    widths = WIDTHS[:2] if quick else WIDTHS
    for width in tracked(widths, progress):
        shape = {"kind": "transformer_lm", "width": width, "heads": 2, "layers": 2, "inner_width": 2 * width}
        model = train_model(data, shape, 20 if quick else 300, seed)
        excess.append(excess_loss(model, truth, 100, 500 + seed))
        for name, decoder in DECODERS.items():
            shares[name].append(sample_sentences(model, truth, decoder, 60 if quick else 500, seed).precision)
    gaps = differences(shares["top-p 0.9"], shares["sampling"])
    return {
        "effect": shares["sampling"][-1] - shares["sampling"][-2],
        "truncation gains at width 16 minus at width 64": gaps[-2] - gaps[-1],
        **points("{}, width {}: possible sentences", widths, shares),
        **points("width {1}: nats a token above the truth", widths, {"excess": excess}),
        "width": [*widths],
        "excess": excess,
        **shares,
    }


# ---- likelihood_trap

KINDS = ("repetition", "reasonable", "nonsense")
TOKENS = 20


def continuations(model: Any, passage: str, rng: Random) -> tuple[list[int], dict[str, list[int]]]:
    """Return about half of a passage, and three continuations of equal length."""
    ids = list(model.tokenizer.encode(passage))
    words = passage.split()
    prompt = list(model.tokenizer.encode(" ".join(words[: round(rng.uniform(0.4, 0.6) * len(words))])))
    rest = ids[len(prompt) :][:TOKENS]
    shuffled = model.tokenizer.encode(" " + " ".join(rng.sample(words, len(words))))
    # The prompt is repeated, as in the examples of the lecture.
    ways = {"repetition": prompt, "reasonable": rest, "nonsense": shuffled}
    return prompt, {
        kind: [token for token in way if token != model.tokenizer.bos_id][: len(rest)]
        for kind, way in ways.items()
    }


@claim(
    "A repetition of the context is more probable to a model than a reasonable continuation.",
    source=f"{LECTURE}, Is argmax the right decoding objective?",
    measured="Eight passages, written for this test: the built-in model `bible` reads the first 40 to 60 % "
    "and scores up to 20 tokens of the rest (reasonable), of the beginning again (repetition), and of the "
    "passage's words in random order (nonsense).",
    primary="mean log p of a token, repetition minus reasonable continuation, for each passage",
    matters=0.1,
    unit="passage",
    crossed=8,
    assumed=(1.0, 0.7),
    secondary=("log p a token, reasonable minus nonsense", "passages with repetition above reasonable"),
    draw=chart(bars(KINDS, "log p a token", "log p a token, {}")),
    limits="The model and the passages are the same with every seed, only where they are cut differs. "
    "The model has 2 million weights and hardly copies its context; the lecture's example is of larger ones.",
)
def likelihood_trap(seed: int, quick: bool, progress: Progress) -> Numbers:
    """log p(repetition | context) > log p(reasonable text | context) > log p(nonsense | context).

    After Zhang et al. 2021; Holtzman et al. 2020 (papers.bib: holtzman2020curious).
    """
    model, rng = us.load("bible"), Random(seed)
    passages = PASSAGES[:3] if quick else PASSAGES
    means: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for passage in tracked(passages, progress):
        prompt, ways = continuations(model, passage, rng)
        for kind, way in ways.items():
            logps = us.score(model, prompt, way).logps
            means[kind].append(fmean(logps))
    gain = differences(means["repetition"], means["reasonable"])
    return {
        "effect": gain,
        **{f"log p a token, {kind}": fmean(means[kind]) for kind in KINDS},
        "log p a token, reasonable minus nonsense": fmean(
            differences(means["reasonable"], means["nonsense"])
        ),
        "passages with repetition above reasonable": sum(it > 0 for it in gain),
        **means,
    }


# ---- large_beams

BEAM_WIDTHS = (1, 4, 16, 64)
MAX_LENGTH = 14


def beam_lengths(model: Any, prompts: Sequence[Any], width: int, most: int) -> tuple[list[int], list[Any]]:
    """Return the lengths of the best hypotheses without EOS, and the outputs."""
    outs = us.generate(model, prompts, us.Beam(width), max_new_tokens=most, batch_size=8)
    return [len(out.tokens) - (out.finish_reason == "eos") for out in outs], outs


@claim(
    "With large beams, search returns shorter texts than with small ones.",
    source=f"{LECTURE}, Is argmax the right decoding objective?",
    measured="A Transformer learns to reverse rows of up to 14 symbols for 250 updates; beams of 1, 4, 16 "
    "and 64, without length penalty, on 40 held-out rows of 10 to 14 symbols. Also the true model of an "
    "artificial language, from 30 prompts of two words.",
    primary="length / right length of each row, beam 4 minus beam 64",
    matters=0.1,
    unit="row",
    assumed=(0.35, 0.2),
    secondary=(
        "translator, beam 64: length ratio",
        "translator, beam 4: right",
        "translator, beam 64: right",
    ),
    draw=chart(
        lines(
            "width",
            {"perfect model": "perfect model of a language"},
            "beam width",
            "words of the best hypothesis",
            xscale="log",
            ticks=BEAM_WIDTHS,
            ylim=(0, None),
        ),
        lines(
            "width",
            {"translator": "length / right length", "right": "right answers"},
            "beam width",
            xscale="log",
            ticks=BEAM_WIDTHS,
            ylim=(0, 1.1),
        ),
    ),
    comment="The translator has learnt little: it gets no row right at any width. A good one is in "
    "translator_beams.",
)
def large_beams(seed: int, quick: bool, progress: Progress) -> Numbers:
    """score(y_1 … y_t) = Σ log p(y_i | y_{<i}), the best of k finished hypotheses: every word lowers it.

    Murray & Chiang 2018 (papers.bib: murray2018correcting); Stahlberg & Byrne 2019.
    """
    widths = BEAM_WIDTHS[:2] if quick else BEAM_WIDTHS
    truth = ZipfMarkov(word_count=200, order=1, branching=16, seed=seed)
    # Prompts are the first two words of sampled sentences, because few words can start a sentence.
    rng = Random(seed)
    starts = [[truth.bos, *truth.sample(rng)[:2]] for _ in range(6 if quick else 30)]
    shape = {**TRANSFORMER_SEQ2SEQ, "decoder_layers": 1, "positions": "sinusoidal"}
    model = train_model(task("reverse", seed, longest=MAX_LENGTH), shape, 30 if quick else 250, seed)
    pairs = held_out("reverse", 6 if quick else 40, seed, shortest=10, longest=MAX_LENGTH)
    goals = [len(target.split()) for _, target in pairs]
    ratios: dict[int, list[float]] = {}
    curves: dict[str, list[float]] = {"perfect model": [], "translator": [], "right": []}
    for width in tracked(widths, progress):
        lengths, _ = beam_lengths(TrueModel(truth), starts, width, 40)
        curves["perfect model"].append(fmean(lengths))
        lengths, outs = beam_lengths(model, [source for source, _ in pairs], width, 2 * MAX_LENGTH)
        ratios[width] = [length / goal for length, goal in zip(lengths, goals, strict=True)]
        curves["translator"].append(fmean(ratios[width]))
        right = [out.text == target for out, (_, target) in zip(outs, pairs, strict=True)]
        curves["right"].append(fmean(right))
    return {
        "effect": differences(ratios[4], ratios[widths[-1]]),
        **points("{}, beam {}: words", widths, {"perfect model": curves["perfect model"]}),
        **points("{}, beam {}: length ratio", widths, {"translator": curves["translator"]}),
        **points("{}, beam {}: right", widths, {"translator": curves["right"]}),
        "mean length of a sentence of the language": truth.mean_length(),
        "width": [*widths],
        **curves,
    }
