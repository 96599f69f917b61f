"""Claims about training: teacher forcing, the order of generation, exposure bias and its remedies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, partial
from random import Random
from typing import Any

import torch

import unspool as us
from unspool.data.known_languages import Agreement, FullSupport
from unspool.diagnose.exposure_bias import true_exposure
from unspool.lab.claim import LECTURE, Numbers, Progress, claim, points, tracked
from unspool.lab.small_models import (
    RNN_LM,
    TRANSFORMER_LM,
    TRANSFORMER_SEQ2SEQ,
    held_out,
    language,
    sample_sentences,
    share_right,
    task,
    train_model,
)
from unspool.plots.seeds import bars, chart, lines

# ---- teacher_forcing

MODELS: dict[str, Any] = {
    "recurrent": RNN_LM,
    "Transformer": TRANSFORMER_LM,
    "recurrent encoder–decoder": {"kind": "rnn_seq2seq", "width": 32, "context_kind": "additive"},
    "Transformer encoder–decoder": TRANSFORMER_SEQ2SEQ,
}


@torch.no_grad()
def forcing_differences(model: Any, rng: Random, length: int) -> tuple[float, float]:
    """Return the largest difference, and the effect of a changed last word on earlier positions."""
    words = range(4, model.vocab_size)
    tokens_T = [rng.choice(words) for _ in range(length)]
    source = [rng.choice(words) for _ in range(6)]
    model.engine = "torch"
    if model.is_encoder_decoder:
        bos, rest = model.ends.bos, tokens_T
        step, state = model.start([source])
        framed = torch.tensor([[*source, min(model.ends.eos)]])
        read = partial(model, framed, torch.tensor([len(source) + 1]))
    else:
        bos, rest = model.tokenizer.bos_id, tokens_T[1:]
        step, state = model.start([[bos, tokens_T[0]]])
        read = model
    steps = [step.logp_NV]
    for token in rest:
        step, state = model.step(state, torch.tensor([token]))
        steps.append(step.logp_NV)
    stepwise = torch.cat(steps)
    rows = torch.tensor([[bos, *tokens_T]])
    changed = rows.clone()
    changed[0, -1] = words[0] if changed[0, -1] != words[0] else words[1]
    parallel, other = read(rows), read(changed)
    past = float((other[0, :-1] - parallel[0, :-1]).abs().max())
    return float((stepwise - parallel[0, -len(stepwise) :]).abs().max()), past


@claim(
    "Training with right prefixes reads a whole text in one pass: it gives the same probabilities as reading "
    "step by step, and later words have no effect.",
    source=f"{LECTURE}, Training; decoder attention masking",
    measured="Four kinds of models, shortly trained, read 40 random words at once and one by one (both by "
    "torch). Then the last word is changed, and the probabilities before it are compared.",
    criterion={
        "no log p differs by more than 1e-4, in any model": lambda n: all(
            n[f"{name}: largest difference of log p"] <= 1e-4 for name in MODELS
        ),
        "a changed last word changes no earlier log p (at most 1e-6), in any model": lambda n: all(
            n[f"{name}: a changed last word changes earlier log p by"] <= 1e-6 for name in MODELS
        ),
    },
    draw=chart(
        bars(
            {f"{name}: largest difference of log p": name for name in MODELS},
            "largest difference of log p, parallel against step by step",
            limit=1e-4,
            xscale="log",
            xlim=(1e-8, 1e-3),
        )
    ),
)
def teacher_forcing(seed: int, quick: bool, progress: Progress) -> Numbers:
    """log p(y | x) = Σ_j log p(y_j | y_{<j}, x), in one parallel pass and step by step.

    Vaswani et al. 2017 (papers.bib: vaswani2017attention).
    """
    numbers: dict[str, float] = {}
    for name, shape in tracked(MODELS.items(), progress):
        is_seq2seq = "seq2seq" in shape["kind"]
        data = task("copy", seed) if is_seq2seq else language("zipf_markov", seed, word_count=100)
        model = train_model(data, shape, 20 if quick else 150, seed)
        difference, past = forcing_differences(model, Random(seed), 40)
        numbers[f"{name}: largest difference of log p"] = difference
        numbers[f"{name}: a changed last word changes earlier log p by"] = past
    return numbers


# ---- right_to_left

DIGITS = 3
UPDATES = (150, 400)
ORDERS = {"left to right": False, "right to left": True}


@claim(
    "Text need not be generated from left to right; a sum is learnt more easily from right to left.",
    source=f"{LECTURE}, Autoregressive generative models: is this the only way of modeling and generating "
    "text?",
    measured="GRU encoder–decoders with attention learn to add numbers of up to three digits, digit by "
    "digit, the sum written in either order, for 150 and 400 updates; 300 held-out sums, greedily.",
    criterion={
        "after 400 updates right to left is at least 0.1 better": lambda n: (
            n["right to left"][-1] >= n["left to right"][-1] + 0.1
        ),
        "and never worse before": lambda n: all(
            b >= a for a, b in zip(n["left to right"], n["right to left"], strict=True)
        ),
    },
    draw=chart(
        lines(
            "updates", {name: name for name in ORDERS}, "updates", "sums that are right", ylim=(-0.03, 1.03)
        )
    ),
)
def right_to_left(seed: int, quick: bool, progress: Progress) -> Numbers:
    """p(y | x) = Π p(y_i | y_{<i}, x)   in either order: "23+45=68", or 8 before 6.

    From right to left each digit needs two digits and a carry.
    """
    shape = {"kind": "rnn_seq2seq", "width": 48, "context_kind": "additive"}
    curves: dict[str, list[float]] = {name: [] for name in ORDERS}
    counts = UPDATES[:1] if quick else UPDATES
    for name, updates in tracked([(name, updates) for name in ORDERS for updates in counts], progress):
        sums = {"digits": DIGITS, "right_to_left": ORDERS[name]}
        data, characters = task("addition", seed, 8000, **sums), {"kind": "characters"}
        model = train_model(data, shape, 20 if quick else updates, seed, lr=1e-2, tokenizer=characters)
        pairs = held_out("addition", 40 if quick else 300, 3, **sums)
        curves[name].append(share_right(model, pairs, DIGITS + 2))
    return {**points("{}, {} updates", UPDATES, curves), "updates": [*counts], **curves}


# ---- exposure_bias

LANGUAGE: dict[str, Any] = {"nouns": 8, "verbs": 8, "fillers": 8, "embed": 0.15}
"""Verbs agree with distant nouns."""
NOISE = 0.02
"""Share of random words, so that every sentence is possible and the truth is known after every prefix."""
LENGTHS = (1, 2, 4, 6, 8, 12)


def _draw_exposure(figure: Any, runs: Sequence[Any]) -> None:
    """Draw the divergence by length, up to the longest that every seed has."""
    shortest = min(len(run["words"]) for run in runs)
    cut = [{name: run[name][:shortest] for name in ("words", "own", "right")} for run in runs]
    names = {"own": "after its own words", "right": "after right words"}
    lines("words", names, "words before", "KL from the truth, nats", ylim=(0, None))(figure.subplots(), cut)


@claim(
    "Trained on right prefixes only, a model does worse after its own words, and worse the more of them "
    "there are.",
    source=f"{LECTURE}, Exposure bias",
    measured="A Transformer learns an artificial language with distant agreement, in which 2 % of the words "
    "are random, so every sentence is possible. After 1 to 12 words, its own or right ones, the exact "
    "divergence of its next word from the truth (600 texts each).",
    criterion={
        "the gap after 8 words is above 0": lambda n: n["gap after 8 words"] > 0,
        "… and larger than after 2 words": lambda n: n["gap after 8 words"] > n["gap after 2 words"],
    },
    draw=_draw_exposure,
)
def exposure_bias(seed: int, quick: bool, progress: Progress) -> Numbers:
    """gap(l) = D_own(l) − D_right(l),   D(l) = E KL(p* ‖ p̂) after l words, its own or right ones.

    He et al. 2021 (papers.bib: he2021exposure); Bengio et al. 2015 (papers.bib: bengio2015scheduled).
    """
    data = {**language("agreement", seed, **LANGUAGE), "noise": NOISE}
    model = train_model(data, TRANSFORMER_LM, 60 if quick else 300, seed)
    progress(0.6)
    truth = FullSupport(Agreement(**LANGUAGE), NOISE)
    found = true_exposure(model, truth, LENGTHS, texts=60 if quick else 600, seed=seed).points
    return {
        **{f"gap after {it.length} words": it.gap for it in found},
        **{f"own texts with noise after {it.length} words": it.lost or 0.0 for it in found},
        "words": [it.length for it in found],
        "own": [it.own for it in found],
        "right": [it.right for it in found],
        "gap": [it.gap for it in found],
    }


# ---- exposure_remedies

TRAINED, BEGIN = 240, 180
REWARD = f"{__name__}:possible"
MARGINS = {"scheduled sampling": 0.01, "unlikelihood": 0.01, "REINFORCE": 0.02, "minimum risk": 0.02}


@cache
def _truth() -> tuple[Agreement, Any]:
    truth = Agreement(**LANGUAGE)
    return truth, truth.codec()


def possible(output: str, reference: str) -> float:  # noqa: ARG001
    """Return the reward: 1 for a possible sentence."""
    truth, codec = _truth()
    words = [token for token in codec.encode(output) if token not in (truth.bos, truth.eos)]
    return float(math.isfinite(truth.log_prob(words)))


def remedies(begin: int) -> dict[str, dict[str, Any]]:
    """Return the recipe changes of each remedy; own words are used from update `begin` on."""
    ask = {"prompt": 1, "stretch": 1.5, "begin": begin}
    decay = {"kind": "linear", "begin": 1.0, "slope": 0.002, "floor": 0.5}
    minimum = {"kind": "minimum_risk", "reward": REWARD, "samples": 4, "alpha": 0.05, "weight": 2.0}
    return {
        "maximum likelihood": {},
        "scheduled sampling": {"objective": {"kind": "scheduled_sampling", "decay": decay}},
        "unlikelihood": {"auxiliary": [{"kind": "unlikelihood", "weight": 0.2}]},
        "REINFORCE": {"auxiliary": [{"kind": "reinforce", "reward": REWARD, "weight": 1.0, **ask}]},
        "minimum risk": {"auxiliary": [{**minimum, **ask}]},
    }


def _is_better(name: str, margin: float, n: Any) -> bool:
    return bool(n[f"{name}: possible sentences"] >= n["maximum likelihood: possible sentences"] + margin)


@claim(
    "Training a model to continue its own words (scheduled sampling, unlikelihood, sequence-level rewards) "
    "improves its texts.",
    source=f"{LECTURE}, Exposure bias: solutions",
    measured=f"Transformers learn an artificial language with distant agreement for {TRAINED} updates, by "
    f"maximum likelihood alone and with each remedy (rewards, from update {BEGIN} on: 1 for a possible "
    "sentence). Of 500 sentences sampled from each, the share that is possible.",
    criterion={
        f"{name}: at least {margin:g} more of the sentences are possible": partial(_is_better, name, margin)
        for name, margin in MARGINS.items()
    },
    draw=chart(
        bars(
            {f"{name}: possible sentences": name for name in remedies(1)},
            "sampled sentences that are possible",
            xlim=(0, 1),
        )
    ),
    limits="Equal updates, not equal time: those of REINFORCE and minimum risk cost several times as much.",
)
def exposure_remedies(seed: int, quick: bool, progress: Progress) -> Numbers:
    """Scheduled sampling, unlikelihood, REINFORCE and minimum risk against maximum likelihood.

    Bengio et al. 2015 (papers.bib: bengio2015scheduled); Ranzato et al. 2016
    (papers.bib: ranzato2016sequence); Welleck et al. 2020 (papers.bib: welleck2020unlikelihood).
    benchmarks/exposure.py measures them at equal processor time.
    """
    data = language("agreement", seed, **LANGUAGE)
    updates, begin = (12, 10) if quick else (TRAINED, BEGIN)
    numbers: dict[str, float] = {}
    for name, tables in tracked(remedies(begin).items(), progress):
        model = train_model(data, TRANSFORMER_LM, updates, seed, **tables)
        result = sample_sentences(model, _truth()[0], us.Sample(), 60 if quick else 500, seed)
        numbers[f"{name}: possible sentences"] = result.precision
        numbers[f"{name}: different sentences"] = result.different / result.texts
    return numbers
