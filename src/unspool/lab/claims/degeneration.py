"""Claims about degeneration: repetition, incoherence, the likelihood trap, large beams, and remedies."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import Any

import unspool as us
from unspool.data.known_languages import ZipfMarkov
from unspool.data.known_languages.known_language import TrueModel
from unspool.evaluate.diversity import seq_rep_n
from unspool.evaluate.known_truth import text_truth
from unspool.lab.claim import LECTURE, Numbers, Progress, claim, points, tracked
from unspool.lab.small_models import (
    OPENINGS,
    PASSAGES,
    TRANSFORMER_LM,
    TRANSFORMER_SEQ2SEQ,
    excess_loss,
    held_out,
    language,
    sample_sentences,
    task,
    train_model,
)
from unspool.plots.canvas import BLUE
from unspool.plots.seeds import bars, chart, lines

LANGUAGE: dict[str, Any] = {"word_count": 60, "order": 1, "branching": 8}
"""Each of 60 words has one to eight successors."""


def repetition(model: Any, decoder: Any, samples: int, tokens: int, seed: int) -> float:
    """Return seq-rep-4 of continuations of exactly `tokens` tokens."""
    outs = us.generate(model, OPENINGS * samples, decoder, max_new_tokens=tokens, seed=seed)
    return seq_rep_n([out.tokens for out in outs], 4)


# ---- degeneration

NAMES = ("greedy", "sampling", "top-p 0.9", "top-k 20")


@claim(
    "Argmax decoding repeats itself, pure sampling is incoherent, and truncated sampling balances the two.",
    source=f"{LECTURE}, Is argmax the right decoding objective? to Truncated sampling",
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
    draw=chart(
        bars({f"{name}: repetition": name for name in NAMES}, "4-grams that were there before"),
        bars({f"{name}: impossible sentences": name for name in NAMES}, "sentences that are impossible"),
        sharey=True,
    ),
)
def degeneration(seed: int, quick: bool, progress: Progress) -> Numbers:
    """ŷ = argmax …,   ŷ_t ~ p̂,   or ŷ_t ~ p̂ cut to its nucleus: in English, and in an artificial language.

    Holtzman et al. 2020 (papers.bib: holtzman2020curious).
    """
    samples, tokens, count = (1, 60, 60) if quick else (4, 128, 500)
    model, never = us.load("bible"), us.MinLength(tokens)
    kinds: list[tuple[Any, tuple[Any, ...]]] = [
        (us.Greedy, ()),
        (us.Sample, ()),
        (us.Sample, (us.TopP(0.9),)),
        (us.Sample, (us.TopK(20),)),
    ]
    truth, data = ZipfMarkov(**LANGUAGE), language("zipf_markov", seed, **LANGUAGE)
    trained = train_model(data, TRANSFORMER_LM, 40 if quick else 300, seed)
    numbers: dict[str, float] = {}
    for name, (kind, transforms) in tracked(zip(NAMES, kinds, strict=True), progress):
        numbers[f"{name}: repetition"] = repetition(model, kind(never, *transforms), samples, tokens, seed)
        result = sample_sentences(trained, truth, kind(*transforms), count, seed)
        numbers[f"{name}: impossible sentences"] = 1 - result.precision
        numbers[f"{name}: different sentences"] = result.different / result.texts
    return numbers


# ---- contrastive_decoding

WEAK = {**TRANSFORMER_LM, "width": 8, "heads": 2, "layers": 1, "inner_width": 16}


def prefixes(truth: ZipfMarkov, count: int, seed: int) -> list[tuple[int, ...]]:
    """Return the first words of longer sentences."""
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
    "Penalising tokens that are probable to a weaker model lowers repetition without loss of quality.",
    source=f"{LECTURE}, Contrastive Decoding",
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
def contrastive_decoding(seed: int, quick: bool, progress: Progress) -> Numbers:
    """score(i) = log p_strong(i) − log p_weak(i)   if p_strong(i) ≥ α max p_strong, else −∞.

    Li et al. 2023 (papers.bib: li2023contrastive).
    """
    tokens, starts = (60, 40) if quick else (128, 300)
    strong, never = us.load("bible"), us.MinLength(tokens)
    contrast = us.Contrast(strong, us.load("bible-weak"))
    numbers = {
        "strong, greedy: repetition": repetition(strong, us.Greedy(never), 1, tokens, seed),
        "contrast, greedy: repetition": repetition(contrast, us.Greedy(never), 1, tokens, seed),
        "strong, top-p 0.9: repetition": repetition(strong, us.Sample(never, us.TopP(0.9)), 1, tokens, seed),
    }
    progress(0.3)
    truth, data = ZipfMarkov(**LANGUAGE), language("zipf_markov", seed, **LANGUAGE)
    able = train_model(data, TRANSFORMER_LM, 40 if quick else 300, seed)
    poor = train_model(data, WEAK, 20 if quick else 100, seed)
    begun = prefixes(truth, starts, seed)
    for name, model in {"strong": able, "weak": poor, "contrast": us.Contrast(able, poor)}.items():
        numbers[f"{name}, greedy: possible sentences"], different = complete(model, truth, begun)
        numbers[f"{name}, greedy: different endings"] = different / len(begun)
    return numbers


# ---- model_size

WIDTHS = (4, 8, 16, 32, 64)
DECODERS = {"sampling": us.Sample(), "top-p 0.9": us.Sample(us.TopP(0.9))}


@claim(
    "As models get better and larger, sampling-based decoding works better.",
    source=f"{LECTURE}, Decoding in practice",
    measured="Transformers of width 4 to 64 learn an artificial language of 60 words for 300 updates. Of 500 "
    "sentences sampled from each, with and without truncation, the share that is possible.",
    criterion={
        "sampling: from each width to the next the share rises, or falls by no more than 0.03": lambda n: all(
            b >= a - 0.03 for a, b in pairwise(n["sampling"])
        ),
        "sampling: at width 64 it is at least 0.3 above that at width 4": lambda n: (
            n["sampling"][-1] >= n["sampling"][0] + 0.3
        ),
        "at width 64 truncation gains less than it gains at best": lambda n: n["gap"][-1] < max(n["gap"]),
    },
    draw=chart(
        lines(
            "width",
            {name: name for name in DECODERS},
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
    truth, data = ZipfMarkov(**LANGUAGE), language("zipf_markov", seed, **LANGUAGE)
    excess: list[float] = []
    shares: dict[str, list[float]] = {name: [] for name in DECODERS}
    widths = WIDTHS[:2] if quick else WIDTHS
    for width in tracked(widths, progress):
        shape = {"kind": "transformer_lm", "width": width, "heads": 2, "layers": 2, "inner_width": 2 * width}
        model = train_model(data, shape, 20 if quick else 300, seed)
        excess.append(excess_loss(model, truth, 100, 500 + seed))
        for name, decoder in DECODERS.items():
            shares[name].append(sample_sentences(model, truth, decoder, 60 if quick else 500, seed).precision)
    return {
        **points("{}, width {}: possible sentences", widths, shares),
        **points("width {1}: nats a token above the truth", widths, {"excess": excess}),
        "width": [*widths],
        "excess": excess,
        **shares,
        "gap": [one - two for one, two in zip(shares["top-p 0.9"], shares["sampling"], strict=True)],
    }


# ---- likelihood_trap

KINDS = ("repetition", "reasonable", "nonsense")
TOKENS = 20


def continuations(model: Any, passage: str, rng: Random) -> tuple[list[int], dict[str, list[int]]]:
    """Return the first half of a passage, and three continuations of equal length."""
    ids = list(model.tokenizer.encode(passage))
    words = passage.split()
    prompt = list(model.tokenizer.encode(" ".join(words[: len(words) // 2])))
    rest = ids[len(prompt) :][:TOKENS]
    shuffled = model.tokenizer.encode(" " + " ".join(rng.sample(words, len(words))))
    # The prompt is repeated, as in the examples of the lecture.
    ways = {"repetition": prompt, "reasonable": rest, "nonsense": shuffled}
    return prompt, {
        kind: [token for token in way if token != model.tokenizer.bos_id][: len(rest)]
        for kind, way in ways.items()
    }


def _draw_passages(figure: Any, runs: Sequence[Any]) -> None:
    axes = figure.subplots()
    for run in runs:
        for logps in zip(*(run[kind] for kind in KINDS), strict=True):
            axes.plot(range(len(KINDS)), logps, "o-", color=BLUE, alpha=0.35, markersize=3)
    axes.set_xticks(range(len(KINDS)), KINDS)
    axes.set_ylabel("log p a token")
    axes.grid(axis="y", alpha=0.3)


@claim(
    "A repetition of the context is more probable to a model than a reasonable continuation, and that is "
    "more probable than nonsense.",
    source=f"{LECTURE}, Is argmax the right decoding objective?",
    measured="Eight passages, written for this test: the built-in model `bible` reads the first half and "
    "scores, for as many tokens, the second half (reasonable), the first half again (repetition), and the "
    "passage's words in random order (nonsense).",
    criterion={
        "repetition above reasonable in at least 7 of 8 passages": lambda n: (
            n["repetition above reasonable"] >= 7
        ),
        "reasonable above nonsense in at least 7 of 8 passages": lambda n: (
            n["reasonable above nonsense"] >= 7
        ),
    },
    draw=_draw_passages,
    limits="A model of 2 million weights rarely copies its context; larger ones do. The seed shuffles the "
    "words; the passages and the model are the same with every seed.",
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
            means[kind].append(sum(logps) / len(logps))
    triples = list(zip(*means.values(), strict=True))
    return {
        **{f"log p a token, {kind}": sum(means[kind]) / len(passages) for kind in KINDS},
        "passages": len(passages),
        "repetition above reasonable": sum(one > two for one, two, _ in triples),
        "reasonable above nonsense": sum(two > three for _, two, three in triples),
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
    "With large beams, search returns empty or very short texts.",
    source=f"{LECTURE}, Is argmax the right decoding objective?",
    measured="Beams of 1 to 64, without length penalty: the true model of an artificial language, from 30 "
    "prompts of two words (its sentences have 10 words on average); and a Transformer that has learnt "
    "for 250 updates to reverse rows, on 40 rows of 10 to 14 symbols.",
    criterion={
        "perfect model: length falls from each width to the next, to at most 0.7 of greedy "
        "search's": lambda n: (
            all(b <= a for a, b in pairwise(n["perfect model"]))
            and n["perfect model"][-1] <= 0.7 * n["perfect model"][0]
        ),
        "translator: the length ratio at 64 is at least 0.05 below that at 1": lambda n: (
            n["translator"][-1] <= n["translator"][0] - 0.05
        ),
        "translator: fewer right answers at 64 than at 4": lambda n: n["right"][-1] < n["right"][1],
    },
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
    pairs = held_out("reverse", 6 if quick else 40, 5, shortest=10, longest=MAX_LENGTH)
    goal = sum(len(target.split()) for _, target in pairs)
    curves: dict[str, list[float]] = {"perfect model": [], "translator": [], "right": []}
    for width in tracked(widths, progress):
        lengths, _ = beam_lengths(TrueModel(truth), starts, width, 40)
        curves["perfect model"].append(sum(lengths) / len(lengths))
        lengths, outs = beam_lengths(model, [source for source, _ in pairs], width, 2 * MAX_LENGTH)
        curves["translator"].append(sum(lengths) / goal)
        right = [out.text == target for out, (_, target) in zip(outs, pairs, strict=True)]
        curves["right"].append(sum(right) / len(right))
    return {
        **points("{}, beam {}: words", widths, {"perfect model": curves["perfect model"]}),
        **points("{}, beam {}: length ratio", widths, {"translator": curves["translator"]}),
        **points("{}, beam {}: right", widths, {"translator": curves["right"]}),
        "mean length of a sentence of the language": truth.mean_length(),
        "width": [*widths],
        **curves,
    }
