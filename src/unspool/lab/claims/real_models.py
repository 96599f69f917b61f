"""Claims about real models: SmolLM2 continuing human texts, models of stories, and a translator.

SmolLM2 has 135 million parameters, about as many as the smallest GPT-2 (124
million). It has int8 weights here.
"""

from __future__ import annotations

from random import Random
from statistics import fmean
from typing import Any

import unspool as us
from unspool.decode.search import TokenF1
from unspool.evaluate.confidence_calibration import pair_calibration
from unspool.evaluate.reference_overlap import overlap
from unspool.lab.claim import LECTURE, PROBLEMS, Numbers, Progress, claim, tracked
from unspool.lab.inputs import human_texts, path_of, smollm2, test_pairs
from unspool.lab.small_models import continue_texts, differences, held_out, loops, repetition
from unspool.plots.seeds import bars, chart, lines

PROMPT, TOKENS = 32, 128
SMOLLM2 = ("smollm2", "texts.jsonl")


# ---- real_degeneration

REPEATING: dict[str, Any] = {
    "greedy": us.Greedy,
    "beam 5": lambda never: us.Beam(5, never),
    "sampling": us.Sample,
    "top-p 0.9": lambda never: us.Sample(never, us.TopP(0.9)),
    "top-k 40": lambda never: us.Sample(never, us.TopK(40)),
}


@claim(
    "Argmax decoding of a real model repeats itself; sampling does not.",
    source=f"{LECTURE}, Is argmax the right decoding objective?",
    measured=f"SmolLM2 (135 M, int8 weights) continues the first {PROMPT} tokens of 8 human texts for each "
    f"seed by {TOKENS} tokens, without an end, by greedy search, beam search and samplers. The share of "
    "repeated 4-grams in each text.",
    primary="share of repeated 4-grams, greedy search minus sampling, for each text",
    matters=0.1,
    unit="text",
    assumed=(0.3, 0.12),
    secondary=(*(f"{name}: repetition" for name in REPEATING), "beam 5 minus greedy"),
    needs=SMOLLM2,
    draw=chart(bars([*REPEATING], "4-grams that were there before", "{}: repetition")),
)
def real_degeneration(seed: int, quick: bool, progress: Progress) -> Numbers:
    """ŷ_t = argmax p̂   against   ŷ_t ~ p̂.

    Holtzman et al. 2020 (papers.bib: holtzman2020curious).
    """
    model, tokens = smollm2(), 24 if quick else TOKENS
    prompts = [text[:PROMPT] for text in human_texts(model, 2 if quick else 8, seed, quick)]
    found = {
        name: repetition(continue_texts(model, prompts, decoder, tokens, seed))
        for name, decoder in tracked(REPEATING.items(), progress)
    }
    means = {f"{name}: repetition": fmean(values) for name, values in found.items()}
    extra = means["beam 5: repetition"] - means["greedy: repetition"]
    return {
        "effect": differences(found["greedy"], found["sampling"]),
        "beam 5 minus greedy": extra,
        **means,
    }


# ---- real_loops

TEMPERATURES = (0.25, 0.5, 0.75, 1.0, 1.5)


@claim(
    "At low temperature, a real model runs into loops.",
    source=f"{PROBLEMS}, problem 4",
    measured=f"SmolLM2 (135 M, int8 weights) continues the first {PROMPT} tokens of 12 human texts for each "
    f"seed by {TOKENS} tokens, without an end, at five temperatures and greedily. A text loops if its last "
    "tokens are exactly periodic (three times, 6 tokens or more).",
    primary="text ends in a loop: share at temperature 1/4 minus share at 1, for each text",
    matters=0.1,
    unit="text",
    assumed=(0.3, 0.15),
    secondary=("greedy: loops", *(f"T = {it:g}: loops" for it in TEMPERATURES)),
    needs=SMOLLM2,
    draw=chart(
        lines(
            "temperature",
            {"loops": "SmolLM2"},
            "temperature (0: greedy)",
            "texts that end in a loop",
            ylim=(-0.03, 1.03),
        )
    ),
)
def real_loops(seed: int, quick: bool, progress: Progress) -> Numbers:
    """p(w | …) ∝ p̂(w | …)^(1/T).

    McAllester's problems, 4 (papers.bib: mcallester2020problems); Holtzman et al. 2020
    (papers.bib: holtzman2020curious).
    """
    model, tokens = smollm2(), 24 if quick else TOKENS
    prompts = [text[:PROMPT] for text in human_texts(model, 2 if quick else 12, seed, quick)]
    decoders: dict[str, Any] = {"greedy": us.Greedy}
    for it in TEMPERATURES:
        decoders[f"T = {it:g}"] = lambda never, it=it: us.Sample(never, us.Temperature(it))
    found = {
        name: loops(continue_texts(model, prompts, decoder, tokens, seed))
        for name, decoder in tracked(decoders.items(), progress)
    }
    return {
        "effect": differences(found["T = 0.25"], found["T = 1"]),
        **{f"{name}: loops": fmean(values) for name, values in found.items()},
        "temperature": [0.0, *TEMPERATURES],
        "loops": [fmean(values) for values in found.values()],
    }


# ---- real_trap

KINDS = ("repetition", "human", "shuffled")


@claim(
    "A repetition of the context is more probable to a real model than the human continuation.",
    source=f"{LECTURE}, Is argmax the right decoding objective?",
    measured="SmolLM2 (135 M, int8 weights) reads the first 24 tokens of 12 human texts for each seed, and "
    "scores the next 24 (human), the first 24 again (repetition), and the next 24 in random order "
    "(shuffled).",
    primary="mean log p of a token, repetition minus human continuation, for each text",
    matters=0.5,
    unit="text",
    assumed=(2.0, 0.5),
    secondary=("human minus shuffled", *(f"log p a token, {kind}" for kind in KINDS)),
    needs=SMOLLM2,
    draw=chart(bars(KINDS, "log p a token", "log p a token, {}")),
)
def real_trap(seed: int, quick: bool, progress: Progress) -> Numbers:
    """log p(repetition | context) > log p(human text | context) > log p(nonsense | context).

    After Zhang et al. 2021 (papers.bib: zhang2021trading); Holtzman et al. 2020
    (papers.bib: holtzman2020curious).
    """
    model, rng = smollm2(), Random(seed)
    means: dict[str, list[float]] = {kind: [] for kind in KINDS}
    texts = [text[:48] for text in human_texts(model, 2 if quick else 12, seed, quick)]
    for text in tracked(texts, progress):
        prompt, rest = text[:24], text[24:]
        for kind, way in zip(KINDS, (prompt, rest, rng.sample(rest, len(rest))), strict=True):
            means[kind].append(fmean(us.score(model, prompt, way).logps))
    return {
        "effect": differences(means["repetition"], means["human"]),
        "human minus shuffled": fmean(differences(means["human"], means["shuffled"])),
        **{f"log p a token, {kind}": fmean(values) for kind, values in means.items()},
    }


# ---- real_calibration

MARGIN = 0.05


@claim(
    "A real model's next-token probabilities are calibrated on human text: its confidence differs from its "
    f"accuracy by less than {MARGIN:g}.",
    source=f"{LECTURE}, Sampling-based decoding: if we have learned a perfect p(y | x), shouldn't we just "
    "sample from it?",
    measured="SmolLM2 (135 M, int8 weights) reads 40 human texts for each seed. After the first 16 tokens, "
    "the mean probability of its most probable token (confidence), and how often that is the next token "
    "(accuracy).",
    primary=f"{MARGIN:g} minus |confidence − accuracy|",
    matters=0.01,
    assumed=(0.03, 0.01),
    secondary=("confidence minus accuracy", "accuracy", "expected calibration error"),
    needs=SMOLLM2,
    draw=chart(bars(("confidence", "accuracy", "expected calibration error"), "share of tokens")),
    limits="The model is tuned to follow instructions, which is known to change calibration. Only the most "
    "probable token counts.",
)
def real_calibration(seed: int, quick: bool, progress: Progress) -> Numbers:
    """E max_i p̂(i)   against   P(y = argmax_i p̂(i)).

    Guo et al. 2017 (papers.bib: guo2017calibration).
    """
    model = smollm2()
    texts = human_texts(model, 4 if quick else 40, seed, quick)
    found = pair_calibration(model, [(text[:16], text[16:64]) for text in texts])
    progress(1.0)
    return {
        "effect": MARGIN - abs(found.overconfidence),
        "confidence minus accuracy": found.overconfidence,
        "confidence": found.confidence,
        "accuracy": found.accuracy,
        "expected calibration error": found.ece,
    }


# ---- story_model_size

SIZES = {"stories260K": "260 thousand", "stories15M": "15 million"}
STORY_TEXTS = tuple(f"{size}, {it}" for size in SIZES for it in ("greedy", "sampling"))
BOS, STORY_TOKENS = 1, 200


@claim(
    "Argmax decoding runs into loops less as models get larger.",
    source=f"{LECTURE}, Is argmax the right decoding objective? Hypotheses: models don't fit the data well "
    "(but the problem doesn't go away with larger models)",
    measured="Models of children's stories with 260 thousand and 15 million parameters each sample 24 "
    f"beginnings of 16 tokens, and continue them by {STORY_TOKENS} tokens, without an end, greedily and by "
    "sampling.",
    primary="share of greedy texts that end in a loop, 260 thousand minus 15 million parameters",
    matters=0.1,
    assumed=(0.3, 0.15),
    secondary=tuple(f"{it}: loops" for it in STORY_TEXTS),
    needs=tuple(SIZES),
    draw=chart(bars(STORY_TEXTS, "texts that end in a loop", "{}: loops", xlim=(0, 1.02))),
    limits="The smaller model's tokens are shorter (512 kinds, not 32,000), so its texts have fewer words "
    "in which to loop.",
)
def story_model_size(seed: int, quick: bool, progress: Progress) -> Numbers:
    """P(greedy text loops) by the size of the model."""
    found: dict[str, float] = {}
    count, tokens = (2, 24) if quick else (24, STORY_TOKENS)
    for size, small in tracked(zip(SIZES, ("bible-weak", "bible"), strict=True), progress):
        model: Any = us.load(small if quick else path_of(size))
        prompts = [(BOS, *it) for it in continue_texts(model, [[BOS]] * count, us.Sample, 16, seed)]
        for name, decoder in {"greedy": us.Greedy, "sampling": us.Sample}.items():
            texts = continue_texts(model, prompts, decoder, tokens, seed)
            found[f"{size}, {name}: loops"] = fmean(loops(texts))
    return {"effect": found["stories260K, greedy: loops"] - found["stories15M, greedy: loops"], **found}


# ---- translator_beams

WIDTHS = (1, 4, 16, 64)
SEARCHES: dict[str, Any] = {
    **{f"beam {width}": us.Beam(width) for width in WIDTHS},
    "exact": us.ExactSearch(64, 20_000),
}


@claim(
    "Even a good translator's most probable text is much shorter than what a small beam finds.",
    source=f"{LECTURE}, Is argmax the right decoding objective?",
    measured="A Transformer for German to English (recipes/translation.toml with 700 updates; BLEU 30.5 on "
    "2,000 test pairs with beam 5) translates 40 test sentences for each seed by beams of 1 to 64 and by "
    "exact search (64 prefixes at a time, at most 20,000 tokens read), without length penalty.",
    primary="length / reference length, beam 4 minus exact search, for each sentence",
    matters=0.1,
    contradicted_below=0.05,
    unit="sentence",
    assumed=(0.25, 0.1),
    secondary=(
        *(f"{name}: length ratio" for name in SEARCHES),
        *(f"{name}: F₁" for name in SEARCHES),
        "exact: empty",
        "exact: proved to be the most probable",
        "beam 4 misses the most probable text",
        "beam 4: BLEU",
    ),
    needs=("translator", "pairs.tsv"),
    draw=chart(
        bars([*SEARCHES], "length / reference length", "{}: length ratio", limit=1.0),
        bars([*SEARCHES], "F₁ of tokens", "{}: F₁", xlim=(0, 1)),
        sharey=True,
    ),
    limits="One translator, of short sentences. A text without a proof is the best one that was found, so "
    "the difference can be larger.",
)
def translator_beams(seed: int, quick: bool, progress: Progress) -> Numbers:
    """ŷ = argmax_y log p(y | x) by depth-first search with bounds, beside beams of k.

    Stahlberg & Byrne 2019 (papers.bib: stahlberg2019nmt); Koehn & Knowles 2017 (papers.bib: koehn2017six).
    """
    model: Any = us.load("dates" if quick else path_of("translator"))
    pairs = held_out("dates", 2, seed) if quick else test_pairs(40, seed)
    sources, references = zip(*pairs, strict=True)
    targets = [model.tokenizer.encode(text) for text in references]
    f1, numbers, outs = TokenF1(), dict[str, Any](), dict[str, Any]()
    ratios: dict[str, list[float]] = {}
    for name, search in tracked(SEARCHES.items(), progress):
        outs[name] = us.generate(model, list(sources), search, max_new_tokens=80)
        texts = [out.tokens[: len(out.tokens) - (out.finish_reason == "eos")] for out in outs[name]]
        ratios[name] = [len(one) / len(other) for one, other in zip(texts, targets, strict=True)]
        numbers[f"{name}: length ratio"] = fmean(ratios[name])
        numbers[f"{name}: F₁"] = fmean([f1(*pair) for pair in zip(texts, targets, strict=True)])
        numbers[f"{name}: empty"] = fmean([float(not text) for text in texts])
    better = zip(outs["exact"], outs["beam 4"], strict=True)
    return {
        "effect": differences(ratios["beam 4"], ratios["exact"]),
        "exact: proved to be the most probable": fmean([it.stats["optimal"] for it in outs["exact"]]),
        "exact: tokens read": fmean([it.stats["read"] for it in outs["exact"]]),
        "beam 4 misses the most probable text": fmean([one.total > two.total + 1e-4 for one, two in better]),
        "beam 4: BLEU": overlap([out.text for out in outs["beam 4"]], list(references)).bleu,
        **numbers,
    }
