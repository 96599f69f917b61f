"""The lecture's three hypotheses about repetition, each tested by an intervention on one small language.

The hypotheses: the model does not fit the data well; the prefix is the model's own text; the training data
contain repetition. A language of order 2 is used because its own texts hardly repeat more than by chance.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

import unspool as us
from unspool.data.known_languages import FullSupport, ZipfMarkov
from unspool.diagnose.exposure_bias import true_exposure
from unspool.lab.claim import LECTURE, Numbers, Progress, claim, points, tracked
from unspool.lab.small_models import (
    TRANSFORMER_LM,
    continue_texts,
    differences,
    excess_loss,
    language,
    loops,
    train_model,
)
from unspool.plots.seeds import bars, chart, lines

SOURCE = f"{LECTURE}, Is argmax the right decoding objective? Hypotheses"
LANGUAGE: dict[str, Any] = {"word_count": 100, "order": 2, "branching": 12, "stop": 0.02}
BEGUN, TOKENS = 16, 128


def beginnings(truth: Any, count: int, length: int, seed: int) -> list[tuple[int, ...]]:
    rng = Random(f"beginnings {seed}")
    found: list[tuple[int, ...]] = []
    while len(found) < count:
        sentence = truth.sample(rng)
        if len(sentence) > length:
            found.append((truth.bos, *sentence[:length]))
    return found


def greedy_loops(model: Any, prompts: Sequence[Any]) -> list[float]:
    """Return for the greedy continuation of each prompt, without an end, whether it ends in a loop."""
    return loops(continue_texts(model, prompts, us.Greedy, TOKENS, 0))


# ---- loops_by_size

WIDTHS = (8, 32, 96)


@claim(
    "A model repeats itself because it does not fit the data well: a larger one does so less.",
    source=f"{SOURCE}: models don't fit the data well (but the problem doesn't go away with larger models)",
    measured="Transformers of width 8, 32 and 96 learn an artificial language of order 2 (100 words, at most "
    f"12 of which can follow) for 300 updates, on the same batches. From 40 beginnings of {BEGUN} words, the "
    f"share of greedy texts of {TOKENS} words, without an end, that end in a loop.",
    primary="share of greedy texts that loop, width 8 minus width 96",
    matters=0.1,
    seeds=12,
    assumed=(0.3, 0.2),
    secondary=(
        *(f"width {it}: loops" for it in WIDTHS),
        *(f"width {it}: nats a token above the truth" for it in WIDTHS),
    ),
    draw=chart(
        lines(
            "width",
            {"loops": "greedy texts in a loop"},
            "width of the model",
            "share of texts",
            ticks=WIDTHS,
            xscale="log",
            ylim=(-0.03, 1.03),
        ),
        lines(
            "width",
            {"excess": "above the truth"},
            "width of the model",
            "nats a token",
            ticks=WIDTHS,
            xscale="log",
            ylim=(0, None),
        ),
    ),
)
def loops_by_size(seed: int, quick: bool, progress: Progress) -> Numbers:
    """P(greedy text loops) by the width of the model.

    Holtzman et al. 2020 (papers.bib: holtzman2020curious).
    """
    data = language("zipf_markov", seed, 2000, **LANGUAGE, seed=seed)
    truth = ZipfMarkov(**LANGUAGE, seed=seed)
    prompts = beginnings(truth, 4 if quick else 40, BEGUN, seed)
    curves: dict[str, list[float]] = {"loops": [], "nats a token above the truth": []}
    for width in tracked(WIDTHS, progress):
        shape = {**TRANSFORMER_LM, "width": width, "inner_width": 2 * width}
        model = train_model(data, shape, 10 if quick else 300, seed)
        curves["loops"].append(fmean(greedy_loops(model, prompts)))
        curves["nats a token above the truth"].append(
            excess_loss(model, truth, 4 if quick else 60, 500 + seed)
        )
    return {
        "effect": curves["loops"][0] - curves["loops"][-1],
        **points("width {1}: {0}", WIDTHS, curves),
        "width": [*WIDTHS],
        "loops": curves["loops"],
        "excess": curves["nats a token above the truth"],
    }


# ---- loops_by_prefix

NOISE, LENGTH = 0.02, 24


@claim(
    "A model repeats itself because it reads its own words: after right ones it does so less.",
    source=f"{SOURCE}: distribution shift during inference",
    measured="A Transformer of width 32 learns the language of loops_by_size, with 2 % random words, so that "
    f"every text is possible, for 300 updates. Prefixes of {LENGTH} words are sampled from the language and, "
    f"after the same first 4 words, from the model: 60 each. The share of greedy continuations of {TOKENS} "
    "words, without an end, that end in a loop.",
    primary="share of greedy texts that loop, own prefixes minus right ones",
    matters=0.1,
    seeds=16,
    assumed=(0.25, 0.15),
    secondary=(
        "own prefix: loops",
        "right prefix: loops",
        f"divergence from the truth after {LENGTH} words, own minus right ones, nats",
    ),
    draw=chart(bars(("own prefix", "right prefix"), "texts in a loop", "{}: loops")),
    limits="Greedy search reads its own words in both cases; what differs is what it begins with.",
)
def loops_by_prefix(seed: int, quick: bool, progress: Progress) -> Numbers:
    """P(greedy text loops | ŷ_{<l} ~ p̂) − P(greedy text loops | y_{<l} ~ p*), and the exposure bias.

    The lecture's distribution shift; He et al. 2021 (papers.bib: he2021exposure) for the divergence.
    """
    truth = FullSupport(ZipfMarkov(**LANGUAGE, seed=seed), NOISE)
    data = {**language("zipf_markov", seed, 1500, **LANGUAGE, seed=seed), "noise": NOISE}
    model = train_model(data, TRANSFORMER_LM, 10 if quick else 300, seed)
    progress(0.5)
    right = beginnings(truth, 4 if quick else 60, LENGTH, seed)
    more = LENGTH - 4
    texts = continue_texts(model, [prompt[:5] for prompt in right], us.Sample, more, seed)
    own = [(*prompt[:5], *text) for prompt, text in zip(right, texts, strict=True)]
    found = {"own": greedy_loops(model, own), "right": greedy_loops(model, right)}
    (gap,) = true_exposure(model, truth, (LENGTH,), texts=20 if quick else 200, seed=seed).points
    return {
        "effect": fmean(differences(found["own"], found["right"])),
        **{f"{name} prefix: loops": fmean(values) for name, values in found.items()},
        f"divergence from the truth after {LENGTH} words, own minus right ones, nats": gap.gap,
    }


# ---- loops_by_data

SHARES = (0.0, 0.05, 0.1, 0.2, 0.5)


def repeating_lines(truth: ZipfMarkov, count: int, share: float, seed: int) -> Iterator[str]:
    """Yield sentences; a share of them repeats a phrase of 3 to 8 words from some place to the end.

    Sentences, places and phrases are the same for every share.
    """
    rng = Random(seed)
    for _ in range(count):
        row = list(truth.sample(rng))
        planted, place, size = rng.random() < share, rng.randrange(len(row)), rng.randint(3, 8)
        if planted:
            phrase, length = row[place : place + size], len(row)
            row = (row[: place + size] + phrase * length)[:length]
        yield truth.spell(row)


@claim(
    "A model repeats itself because its training data contain repetition.",
    source=f"{SOURCE}: training data contains repetition",
    measured="A Transformer of width 32 learns the language of loops_by_size for 300 updates from the same "
    "2,000 sentences, of which a share of 0 to 0.5 repeats a phrase of 3 to 8 words from some place to the "
    f"end. From 40 beginnings of {BEGUN} words without repetition, the share of greedy texts of {TOKENS} "
    "words, without an end, that end in a loop.",
    primary="share of greedy texts that loop, a share of 0.2 minus none",
    matters=0.1,
    seeds=20,
    assumed=(0.4, 0.3),
    secondary=tuple(f"share {it}: loops" for it in SHARES),
    draw=chart(
        lines(
            "share",
            {"loops": "greedy texts in a loop"},
            "share of the training sentences that repeat a phrase",
            "share of texts",
            ylim=(-0.03, 1.03),
        )
    ),
)
def loops_by_data(seed: int, quick: bool, progress: Progress) -> Numbers:
    """P(greedy text loops) by the share of training sentences with planted repetition.

    Holtzman et al. 2020 (papers.bib: holtzman2020curious); Xu et al. 2022 (papers.bib: xu2022learning).
    """
    truth = ZipfMarkov(**LANGUAGE, seed=seed)
    prompts = [truth.spell(row[1:]) for row in beginnings(truth, 4 if quick else 40, BEGUN, seed)]
    found: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        for share in tracked(SHARES, progress):
            file = Path(folder) / f"{share}.txt"
            rows = repeating_lines(truth, 2000, share, seed)
            file.write_text("\n".join(rows), encoding="utf-8")
            data, words = {"kind": "lines", "train": str(file)}, {"kind": "words"}
            # One of the 40,000 sentences (seed 116) is longer than a batch.
            batches = {"kind": "bucketed", "tokens": 512, "long": "cut"}
            updates = 10 if quick else 300
            model = train_model(data, TRANSFORMER_LM, updates, seed, tokenizer=words, batches=batches)
            found.append(fmean(greedy_loops(model, prompts)))
    return {
        "effect": found[SHARES.index(0.2)] - found[0],
        **points("share {1}: {0}", SHARES, {"loops": found}),
        "share": [*SHARES],
        "loops": found,
    }
