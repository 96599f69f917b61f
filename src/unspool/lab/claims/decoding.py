"""Claims and checks about decoding in general: end symbols, the cost of search, temperature, and ratings."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from statistics import fmean, median
from typing import Any

import torch

import unspool as us
from unspool.evaluate.rating.rater_agreement import alpha
from unspool.lab.claim import KERBS, LECTURE, Numbers, Progress, check, claim, points, tracked
from unspool.lab.small_models import (
    OPENINGS,
    TRANSFORMER_SEQ2SEQ,
    continue_texts,
    differences,
    held_out,
    prompts_of,
    repetition,
    share_right,
    task,
    train_model,
)
from unspool.plots.seeds import bars, chart, lines
from unspool.testing import TableModel, random_table

# ---- end_symbol


@check(
    "Without an end symbol, a beginning is at least as probable as the whole text; with it, it need not be.",
    source=f"{LECTURE}, Start and end symbols",
    measured="The built-in model `dates` scores 40 right answers (3 March 1987 → 1987-03-03) and their "
    "beginnings, with and without the end symbol.",
    criterion={
        "no beginning is less probable than the whole, without an end": lambda n: (
            n["least log p of a beginning minus that of the whole"] >= 0
        ),
        "with an end, the whole is more probable than each beginning, in every answer": lambda n: (
            n["answers more probable than each of their beginnings, with an end"] == 1
        ),
    },
    draw=chart(
        lines("characters", ("without an end", "with an end"), "characters of the answer", "log p, median")
    ),
)
def end_symbol(seed: int, quick: bool, progress: Progress) -> Numbers:
    """p(y_1 … y_t) = Π p(y_i | y_{<i})   against   p(y_1 … y_t) · p(EOS | y_{≤t})."""
    model: Any = us.load("dates")
    (eos,) = model.tokenizer.eos_ids
    gaps: list[float] = []
    open_, ended, right = list[list[float]](), list[list[float]](), 0
    for source, target in tracked(held_out("dates", 5 if quick else 40, seed), progress):
        tokens = model.tokenizer.encode(target)
        texts = [(*tokens[:length], eos) for length in range(1, len(tokens) + 1)]
        scored = us.score(model, [source] * len(texts), texts)
        whole = scored[-1].logps[:-1]
        open_.append([sum(whole[:length]) for length in range(1, len(tokens) + 1)])
        ended.append([sum(it.logps) for it in scored])
        gaps.append(min(open_[-1]) - open_[-1][-1])
        right += ended[-1][-1] > max(ended[-1][:-1])
    return {
        "least log p of a beginning minus that of the whole": min(gaps),
        "answers more probable than each of their beginnings, with an end": right / len(gaps),
        "characters": [*range(1, len(open_[0]) + 1)],
        "without an end": [median(column) for column in zip(*open_, strict=True)],
        "with an end": [median(column) for column in zip(*ended, strict=True)],
    }


# ---- search_costs

VOCABULARY, LENGTH, BEAMS = 5, 6, (1, 2, 4, 16)


@check(
    "Exhaustive search scores V^n texts, a beam of k at most n·k·V continuations; exact search finds the "
    "same text as exhaustive search with fewer.",
    source=f"{LECTURE}, Argmax decoding; beam search",
    measured=f"Thirty random models of {VOCABULARY} tokens, texts of {LENGTH}: the prefixes that a model is "
    "asked about, times V.",
    criterion={
        "no beam scores more than n·k·V continuations": lambda n: all(
            n[f"beam {k}: scores, most"] <= LENGTH * k * VOCABULARY for k in BEAMS
        ),
        "exact search finds the text of exhaustive search, with a proof": lambda n: n["exact: right"] == 1,
        "and scores fewer continuations than there are texts": lambda n: (
            n["exact: scores, most"] < VOCABULARY**LENGTH
        ),
    },
    draw=chart(
        bars(
            (*(f"beam {k}" for k in BEAMS), "exact"), "most probable text found", "{}: right", xlim=(0, 1.02)
        )
    ),
)
def search_costs(seed: int, quick: bool, progress: Progress) -> Numbers:
    """V^n   against   n·k·V.   Stahlberg & Byrne 2019 (papers.bib: stahlberg2019nmt)."""
    searches: dict[str, Any] = {f"beam {k}": us.Beam(k) for k in BEAMS}
    searches |= {"exact": us.ExactSearch(4), "all": us.Beam(VOCABULARY ** (LENGTH - 1))}
    scores: dict[str, list[float]] = {name: [] for name in searches}
    right = dict.fromkeys(searches, 0)
    models = range(2 if quick else 30)
    for number in tracked(models, progress):
        table = random_table(VOCABULARY, 1000 * seed + number).table
        best = {}
        for name, search in searches.items():
            asked = list[int]()

            def counted(row: tuple[int, ...], asked: list[int] = asked) -> Sequence[float]:
                asked.append(1)
                return table(row)  # noqa: B023

            model = TableModel(counted)
            model.vocab_size  # noqa: B018 (asks the table once)
            asked.clear()
            best[name] = us.generate(model, [[0]], search, max_new_tokens=LENGTH)[0]
            scores[name].append(len(asked) * VOCABULARY)
        for name, out in best.items():
            right[name] += out.tokens == best["all"].tokens and out.stats.get("optimal", True)
    return {
        **{f"{name}: right": count / len(models) for name, count in right.items()},
        **{f"{name}: scores, most": max(count) for name, count in scores.items()},
        **{f"{name}: scores, mean": fmean(count) for name, count in scores.items()},
        "texts, V^n": VOCABULARY**LENGTH,
    }


# ---- temperature_limits


@check(
    "As T → 0, tempered sampling becomes argmax; as T → ∞, uniform. The order of tokens stays, the order of "
    "texts does not.",
    source=f"{LECTURE}, Tempered sampling",
    measured="The built-in model `bible` after 8 openings: greedy texts of 20 tokens and samples at T = "
    "10⁻⁴, the distribution at T = 10⁶, and the ranks of tokens and of texts of two tokens (30 × 30) at T = "
    "1 and 1/2.",
    criterion={
        "samples at T = 10⁻⁴ are the greedy texts": lambda n: n["samples that are greedy"] == 1,
        "at T = 10⁶ no p differs from 1/V by more than a thousandth of it": lambda n: (
            n["largest V·p − 1 at T = 10⁶"] <= 1e-3
        ),
        "no two tokens change their order": lambda n: n["pairs of tokens that change their order"] == 0,
        "some pairs of texts do": lambda n: n["pairs of texts that change their order"] > 0,
    },
    draw=chart(
        bars({"pairs of texts that change their order": "T = 1 to 1/2"}, "pairs of texts", xlim=(0, 1))
    ),
)
@torch.no_grad()
def temperature_limits(seed: int, quick: bool, progress: Progress) -> Numbers:
    """q(y_t) ∝ p(y_t)^{1/T}: log q(y) = Σ (log p(y_t)/T − log Z(y_{<t})), and Z differs from text to text."""
    model = us.load("bible")
    prompts = prompts_of(model, 2 if quick else 8, seed)
    cold = us.generate(model, prompts, us.Sample(us.Temperature(1e-4)), max_new_tokens=20, seed=seed)
    greedy = us.generate(model, prompts, us.Greedy(), max_new_tokens=20)
    step, state = model.start(prompts)
    hot_NV = _tempered(step.logp_NV, 1e6)
    half_NV = _tempered(step.logp_NV, 0.5)
    order_NV = step.logp_NV.argsort(dim=-1, stable=True)
    sorted_NV = half_NV.gather(1, order_NV)
    progress(0.5)
    changed = pairs = 0
    for row in range(len(prompts)):
        first_K = step.logp_NV[row].topk(30).indices
        _, state = model.start([prompts[row]])
        after, _ = model.step(state.select(torch.zeros(30, dtype=torch.long)), first_K)
        second_KK = after.logp_NV[:, :].topk(30).indices
        plain, tempered = (
            (one[row, first_K][:, None] + two.gather(1, second_KK)).flatten()
            for one, two in ((step.logp_NV, after.logp_NV), (half_NV, _tempered(after.logp_NV, 0.5)))
        )
        upper = torch.triu(torch.ones(900, 900, dtype=torch.bool), 1)
        swapped = (plain[:, None] - plain) * (tempered[:, None] - tempered) < 0
        changed, pairs = changed + int(swapped[upper].sum()), pairs + int(upper.sum())
    return {
        "samples that are greedy": fmean(
            [one.tokens == two.tokens for one, two in zip(cold, greedy, strict=True)]
        ),
        "largest V·p − 1 at T = 10⁶": float((hot_NV.exp() * model.vocab_size - 1).abs().max()),
        "pairs of tokens that change their order": int((sorted_NV.diff(dim=-1) < 0).sum()),
        "pairs of texts that change their order": changed / pairs,
    }


def _tempered(logp_NV: torch.Tensor, temperature: float) -> torch.Tensor:
    return (logp_NV.double() / temperature).log_softmax(-1)


# ---- small_beams

KINDS: dict[str, Any] = {
    "beam 4": us.Beam(4),
    "beam 64": us.Beam(64),
    "greedy": us.Greedy(),
    "sampling": us.Sample(),
}


@claim(
    "Where there is a right answer, a small beam finds it more often than sampling; in open-ended text the "
    "beam repeats itself.",
    source=f"{LECTURE}, Decoding in practice",
    measured="Transformers learn to reverse rows of up to 8 symbols for 400 updates; 200 held-out rows by "
    "beams, greedy search and sampling. Also the built-in model `bible` after 16 openings: repeated 4-grams.",
    primary="the smaller of two differences: share of right answers, beam 4 minus sampling; and share of "
    "repeated 4-grams, beam 4 minus top-p 0.9",
    matters=0.02,
    assumed=(0.1, 0.06),
    secondary=(
        *(f"{name}: right" for name in KINDS),
        "bible, beam 4: repetition",
        "bible, top-p 0.9: repetition",
    ),
    draw=chart(
        bars([*KINDS], "right answers", "{}: right", xlim=(0, 1)),
        bars(("beam 4", "top-p 0.9"), "4-grams that were there before", "bible, {}: repetition"),
    ),
)
def small_beams(seed: int, quick: bool, progress: Progress) -> Numbers:
    """One right y for every x   against   many."""
    tokens, updates = (24, 10) if quick else (128, 400)
    shape = {**TRANSFORMER_SEQ2SEQ, "decoder_layers": 1, "positions": "sinusoidal"}
    model = train_model(task("reverse", seed, longest=8), shape, updates, seed)
    pairs = held_out("reverse", 10 if quick else 200, seed, longest=8)
    found = {
        f"{name}: right": share_right(model, pairs, 12, kind)
        for name, kind in tracked(KINDS.items(), progress)
    }
    bible = us.load("bible")
    prompts = prompts_of(bible, 2 if quick else len(OPENINGS), seed)
    kinds: dict[str, Any] = {
        "beam 4": lambda never: us.Beam(4, never),
        "top-p 0.9": lambda never: us.Sample(never, us.TopP(0.9)),
    }
    for name, kind in kinds.items():
        texts = continue_texts(bible, prompts, kind, tokens, seed)
        found[f"bible, {name}: repetition"] = fmean(repetition(texts))
    right = found["beam 4: right"] - found["sampling: right"]
    repeats = found["bible, beam 4: repetition"] - found["bible, top-p 0.9: repetition"]
    return {"effect": min(right, repeats), **found}


# ---- rating_standard

ANSWER, NOISE = 16, (0.0, 0.1, 0.2, 0.4)
FLUENT = -4.5
"""The mean log p of a token from which the scripted raters call an answer fluent."""


def scripted_marks(model: Any, openings: Sequence[str], seed: int) -> tuple[list[int], list[int]]:
    """Return the marks of answers of four kinds by the standard, with fluency and relevance by log p, and
    those that follow from how the answers were made.

    A quarter each: the model's own, that of the next opening, and the same two in random order.
    """
    rng, never = Random(seed), us.MinLength(ANSWER)
    outs = us.generate(model, openings, us.Sample(never, us.TopP(0.9)), max_new_tokens=ANSWER, seed=seed)
    found, made = list[int](), list[int]()
    for at, opening in enumerate(openings):
        is_own, is_ordered = at % 2 == 0, at // 2 % 2 == 0
        answer = outs[at if is_own else (at + 1) % len(outs)].tokens
        answer = answer if is_ordered else tuple(rng.sample(answer, len(answer)))
        others = [openings[(at + shift) % len(openings)] for shift in range(1, 5)]
        here, *elsewhere = (it.total for it in us.score(model, [opening, *others], [answer] * 5))
        found.append(int(here / ANSWER > FLUENT) + int(here > max(elsewhere)))
        made.append(int(is_ordered) + int(is_own))
    return found, made


def expected_alpha(marks: Sequence[int], noise: float) -> float:
    """Return α of two raters who each give a random mark with this probability, in the limit of many texts.

    They agree with probability Σ_m P(m) q_m with q_m = Σ_r P(r | m)²; D_e is that of the marks they give.
    """
    shares = [marks.count(mark) / len(marks) for mark in range(3)]
    agree = sum(
        share * sum(((1 - noise) * (mark == given) + noise / 3) ** 2 for given in range(3))
        for mark, share in enumerate(shares)
    )
    given = [(1 - noise) * share + noise / 3 for share in shares]
    return 1 - (1 - agree) / (1 - sum(it**2 for it in given))


@check(
    "The 0/1/2 standard: two scripted raters who know which answers are fluent and relevant agree as their "
    "noise says.",
    source=f"{KERBS}, appendix B, scoring standard for human evaluation",
    measured="The built-in model `bible` answers 16 openings 24 times each; half of the answers are given to "
    "another opening, and half are shuffled. A script calls an answer fluent from a mean log p of "
    f"{FLUENT:g} on, and relevant if four other openings make it less probable. Two raters give its mark (0 "
    "to 2), or a random one with probability 0 to 0.4: Krippendorff's α (nominal), and its expectation.",
    criterion={
        "raters without noise agree: α = 1": lambda n: n["noise 0.0: α"] == 1,
        "α differs from its expectation by at most 0.12, at every noise": lambda n: (
            n["largest difference from the expectation"] <= 0.12
        ),
        "the script gives higher marks to better answers": lambda n: (
            n["mean mark of own, ordered answers"] > n["mean mark of others"]
        ),
    },
    draw=chart(
        lines("noise", {"α": "measured", "expected": "expected"}, "share of random marks", "Krippendorff's α")
    ),
)
def rating_standard(seed: int, quick: bool, progress: Progress) -> Numbers:
    """mark = fluent + relevant;   α = 1 − D_o / D_e.

    Miao et al. 2019, appendix B (papers.bib: miao2019kernelized); Krippendorff 2011
    (papers.bib: krippendorff2011computing).
    """
    model, rng = us.load("bible"), Random(seed)
    marks, made = scripted_marks(model, OPENINGS * (6 if quick else 24), seed)
    curves: dict[str, list[float]] = {"α": [], "expected": []}
    for noise in tracked(NOISE, progress):
        given = [[rng.randrange(3) if rng.random() < noise else mark for _ in range(2)] for mark in marks]
        curves["α"].append(alpha(given, (0, 1, 2)))
        curves["expected"].append(expected_alpha(marks, noise))
    best = [mark for mark, true in zip(marks, made, strict=True) if true == 2]
    rest = [mark for mark, true in zip(marks, made, strict=True) if true < 2]
    return {
        **points("noise {1}: {0}", NOISE, curves),
        "largest difference from the expectation": max(map(abs, differences(*curves.values()))),
        "mean mark of own, ordered answers": fmean(best),
        "mean mark of others": fmean(rest),
        "marks as the answers were made": fmean([one == two for one, two in zip(marks, made, strict=True)]),
        "noise": [*NOISE],
        **curves,
    }
