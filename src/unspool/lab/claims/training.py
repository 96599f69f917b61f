"""Claims about training: teacher forcing, the order of generation, exposure bias and its remedies."""

from __future__ import annotations

import math
from functools import cache, partial
from random import Random
from typing import Any

import torch

import unspool as us
from unspool.data.known_languages import Agreement, FullSupport
from unspool.diagnose.exposure_bias import true_exposure
from unspool.lab.claim import LECTURE, Numbers, Progress, check, claim, tracked
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


@check(
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
            [*MODELS],
            "largest difference of log p, parallel against step by step",
            "{}: largest difference of log p",
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
UPDATES = 400
ORDERS = {"left to right": False, "right to left": True}


@claim(
    "Text need not be generated from left to right; a sum is learnt more easily from right to left.",
    source=f"{LECTURE}, Autoregressive generative models: is this the only way of modeling and generating "
    "text?",
    measured="GRU encoder–decoders with attention learn to add numbers of up to three digits, digit by "
    f"digit, the sum written in either order, for {UPDATES} updates; 300 held-out sums, greedily.",
    primary="share of right sums, right to left minus left to right",
    matters=0.05,
    seeds=16,
    assumed=(0.25, 0.25),
    secondary=tuple(ORDERS),
    draw=chart(bars([*ORDERS], "sums that are right", xlim=(0, 1))),
)
def right_to_left(seed: int, quick: bool, progress: Progress) -> Numbers:
    """p(y | x) = Π p(y_i | y_{<i}, x)   in either order: "23+45=68", or 8 before 6.

    From right to left each digit needs two digits and a carry.
    """
    shape = {"kind": "rnn_seq2seq", "width": 48, "context_kind": "additive"}
    shares: dict[str, float] = {}
    for name, is_reversed in tracked(ORDERS.items(), progress):
        sums = {"digits": DIGITS, "right_to_left": is_reversed}
        data, characters = task("addition", seed, 8000, **sums), {"kind": "characters"}
        model = train_model(data, shape, 20 if quick else UPDATES, seed, lr=1e-2, tokenizer=characters)
        pairs = held_out("addition", 40 if quick else 300, seed, **sums)
        shares[name] = share_right(model, pairs, DIGITS + 2)
    return {"effect": shares["right to left"] - shares["left to right"], **shares}


# ---- exposure_bias

LANGUAGE: dict[str, Any] = {"nouns": 8, "verbs": 8, "fillers": 8, "embed": 0.15}
"""Verbs agree with distant nouns."""
NOISE = 0.02
"""Share of random words, so that every sentence is possible and the truth is known after every prefix."""
LENGTHS = (1, 2, 4, 6, 8, 12)


@claim(
    "Trained on right prefixes only, a model does worse after its own words.",
    source=f"{LECTURE}, Exposure bias",
    measured="A Transformer learns an artificial language with distant agreement, in which 2 % of the words "
    "are random, so every sentence is possible. After 1 to 12 words, its own or right ones, the exact "
    "divergence of its next word from the truth (600 texts each).",
    primary="divergence after 8 words, its own minus right ones, nats",
    matters=0.05,
    assumed=(0.2, 0.1),
    secondary=("gap after 2 words", "gap after 8 words, minus that after 2"),
    draw=chart(
        lines(
            "words",
            {"own": "after its own words", "right": "after right words"},
            "words before",
            "KL from the truth, nats",
            ylim=(0, None),
        )
    ),
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
    gaps = {it.length: it.gap for it in found}
    return {
        "effect": gaps[8],
        "gap after 8 words, minus that after 2": gaps[8] - gaps[2],
        **{f"gap after {length} words": gap for length, gap in gaps.items()},
        **{f"own texts with noise after {it.length} words": it.lost or 0.0 for it in found},
        "words": [it.length for it in found],
        "own": [it.own for it in found],
        "right": [it.right for it in found],
        "gap": [it.gap for it in found],
    }


# ---- exposure_remedies

TRAINED, BEGIN = 240, 180
REWARD = f"{__name__}:possible"


@cache
def _truth() -> tuple[Agreement, Any]:
    truth = Agreement(**LANGUAGE)
    return truth, truth.new_tokenizer()


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


@claim(
    "Training a model on the goodness of the sequences that it generates improves its texts.",
    source=f"{LECTURE}, Exposure bias: solutions",
    measured=f"Transformers learn an artificial language with distant agreement for {TRAINED} updates, by "
    f"maximum likelihood alone and with each remedy (rewards, from update {BEGIN} on: 1 for a possible "
    "sentence). Of 500 sentences sampled from each, the share that is possible.",
    primary="share of possible sentences, mean of REINFORCE and minimum risk minus maximum likelihood",
    matters=0.02,
    assumed=(0.06, 0.035),
    secondary=tuple(f"{name}: gain" for name in remedies(1) if name != "maximum likelihood"),
    draw=chart(
        bars([*remedies(1)], "sampled sentences that are possible", "{}: possible sentences", xlim=(0, 1))
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
    plain = numbers["maximum likelihood: possible sentences"]
    gains = {name: numbers[f"{name}: possible sentences"] - plain for name in remedies(begin)}
    named = {f"{name}: gain": gain for name, gain in gains.items() if name != "maximum likelihood"}
    return {"effect": (gains["REINFORCE"] + gains["minimum risk"]) / 2, **named, **numbers}
