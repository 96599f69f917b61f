"""Claims about attention: long sources, scaled scores, fewer matrices, and losses on attention weights."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import torch
from torch import Tensor

from unspool.data.known_languages import Agreement
from unspool.lab.claim import LECTURE, PROBLEMS, Numbers, Progress, check, claim, points, tracked
from unspool.lab.small_models import (
    TRANSFORMER_LM,
    excess_loss,
    language,
    share_copied,
    task,
    train_model,
)
from unspool.models.key_elimination import costs, with_keys, without_keys
from unspool.models.rnn_models import RNNSeq2SeqConfig
from unspool.objectives.attention_losses import distance, entropy, pad_rows
from unspool.plots.seeds import bars, chart, lines

CONTEXTS = {"fixed": "last", "attention": "additive"}
CONTEXT_LABELS = {"attention": "attention", "fixed": "fixed context: the last state"}


def attention_layers(model: Any, rows: list[tuple[int, ...]]) -> tuple[Any, list[Any]]:
    """Return the padded batch, and the attention weights of every layer."""
    batch = pad_rows(rows)
    _, (stack,) = model.read_attention(batch)
    return batch, list(stack.layers)


# ---- gradient_to_source

SOURCE_LENGTHS = (2, 4, 8, 16, 32, 64)


def gradient_ratio(model: Any, length: int, rows: int) -> float:
    """Return the geometric mean of ‖∂ log p(y_1) / ∂ e(x_1)‖ / ‖∂ log p(y_1) / ∂ e(x_n)‖."""
    source_NS = torch.randint(4, model.vocab_size, (rows, length))
    target_N1 = torch.randint(4, model.vocab_size, (rows, 1))
    kept = []

    def keep(_module: Any, _inputs: Any, out: Any) -> None:
        out.retain_grad()
        kept.append(out)

    hook = model.embed.register_forward_hook(keep)
    try:
        logp = model(source_NS, torch.full((rows,), length), torch.full((rows, 1), model.config.bos))
    finally:
        hook.remove()
    logp[:, 0].gather(1, target_N1).sum().backward()
    grads_NS = next(it for it in kept if it.shape[1] == length).grad.norm(dim=-1)
    return float((grads_NS[:, 0] / grads_NS[:, -1]).log().mean().exp())


@claim(
    "Through a fixed context vector the gradient vanishes on its way to the first word of a long source; "
    "with attention it flows there directly.",
    source=f"{LECTURE}, Encoder-decoder attention: motivation",
    measured="Untrained GRU encoder–decoders (width 64, one direction) read random sources. The gradient of "
    "the first word's log-probability with respect to the embedding of the first source word, over that of "
    "the last one; geometric means over 32 sources for each of 6 models.",
    primary="log₁₀ of that ratio at 64 words, attention minus fixed context, for each pair of models",
    matters=1.0,
    unit="model",
    assumed=(2.0, 0.6),
    secondary=("fixed, 64 words", "attention, 64 words", "attention, 8 words"),
    draw=chart(
        lines(
            "length",
            CONTEXT_LABELS,
            "words of the source",
            "gradient at the first word\n/ at the last word",
            xscale="log",
            yscale="log",
            ticks=SOURCE_LENGTHS,
        )
    ),
    limits="The models are untrained, as at the start of training; trained models are in attention_lengths.",
)
def gradient_to_source(seed: int, quick: bool, progress: Progress) -> Numbers:
    """c = h_n or c_t = Σ_i α(s_{t−1}, h_i) h_i: how large is ∂ log p(y_1 | x) / ∂ x_1 by the length of x?

    Bahdanau et al. 2015 (papers.bib: bahdanau2015neural); Sutskever et al. 2014
    (papers.bib: sutskever2014sequence).
    """
    curves: dict[str, list[float]] = {name: [] for name in CONTEXTS}
    longest: dict[str, list[float]] = {}
    draws = 2 if quick else 6
    for length in tracked(SOURCE_LENGTHS, progress):
        for name, context in CONTEXTS.items():
            ratios = []
            for draw in range(draws):
                torch.manual_seed(1000 * seed + draw)
                model = RNNSeq2SeqConfig(
                    vocab_size=40, width=64, context_kind=context, bidirectional=False, bos=1, eos=2
                ).build()
                ratios.append(gradient_ratio(model, length, 32))
            curves[name].append(sum(ratios) / draws)
            longest[name] = ratios
    pairs = zip(longest["attention"], longest["fixed"], strict=True)
    effect = [math.log10(one / two) for one, two in pairs]
    return {
        "effect": effect,
        **points("{}, {} words", SOURCE_LENGTHS, curves),
        "length": [*SOURCE_LENGTHS],
        **curves,
    }


# ---- attention_lengths

COPY_LENGTHS = (3, 4, 6, 8, 10, 12)


@claim(
    "A fixed context vector does worse the longer the source is; with attention, length matters less.",
    source=f"{LECTURE}, Encoder-decoder attention",
    measured="GRU encoder–decoders (width 48, one direction) learn for 300 updates to copy rows of 1 to 12 "
    "of 20 symbols, with attention and with the encoder's last state as the only context; then each copies "
    "100 held-out rows of each length, greedily.",
    primary="loss of right copies from 3 to 12 symbols, fixed context minus attention",
    matters=0.25,
    assumed=(0.6, 0.2),
    secondary=("attention, 12 symbols", "fixed, 12 symbols", "attention, 3 symbols", "fixed, 3 symbols"),
    draw=chart(
        lines(
            "length",
            CONTEXT_LABELS,
            "symbols to copy",
            "copied without a mistake",
            ylim=(-0.03, 1.03),
            ticks=COPY_LENGTHS,
        )
    ),
)
def attention_lengths(seed: int, quick: bool, progress: Progress) -> Numbers:
    """c = h_n for every word, or c_t = Σ_i α(s_{t−1}, h_i) h_i; the same network on the same batches.

    Bahdanau et al. 2015, fig. 2 (papers.bib: bahdanau2015neural). benchmarks/lengths.py measures all five
    contexts, for longer.
    """
    curves: dict[str, list[float]] = {}
    data = task("copy", seed, 6000, symbols=20, longest=12)
    for name in tracked(CONTEXT_LABELS, progress):
        shape = {"kind": "rnn_seq2seq", "width": 48, "bidirectional": False, "context_kind": CONTEXTS[name]}
        model = train_model(data, shape, 20 if quick else 300, seed, lr=1e-2)
        curves[name] = [share_copied(model, length, 20 if quick else 100, 20) for length in COPY_LENGTHS]
    lost = {name: curve[0] - curve[-1] for name, curve in curves.items()}
    effect = lost["fixed"] - lost["attention"]
    return {
        "effect": effect,
        **points("{}, {} symbols", COPY_LENGTHS, curves),
        "length": [*COPY_LENGTHS],
        **curves,
    }


# ---- softmax_saturation

WIDTHS = (1, 4, 16, 64, 256, 1024)


def jacobian_norm(scores_NT: Tensor) -> float:
    """Return the mean Frobenius norm of diag(α) − ααᵀ: ‖·‖² = Σα² − 2Σα³ + (Σα²)²."""
    a = scores_NT.softmax(-1)
    square, cube = a.square().sum(-1), a.pow(3).sum(-1)
    return float((square - 2 * cube + square.square()).clamp(min=0).sqrt().mean())


@claim(
    "Inner products of wide vectors saturate the softmax and its gradient vanishes; the factor 1/√I "
    "prevents it.",
    source=f"{PROBLEMS}, problem 2; the lecture's slide on softmax saturation says the same",
    measured="Scores of 32 keys for 4,000 random queries with independent components of variance 1: "
    "the norm of the softmax's Jacobian, by the width I, with and without the factor.",
    primary="log₂ of the norm at I = 1024, with the factor minus without",
    matters=1.0,
    assumed=(2.0, 0.1),
    secondary=(
        "variance of scores / √I, I = 1024",
        "gradient, unscaled, I = 64",
        "gradient, scaled, I = 1024",
    ),
    draw=chart(
        lines(
            "width",
            {"plain": "softmax(q·k)", "scaled": "softmax(q·k / √I)"},
            "I, the width of queries and keys",
            "‖∂α / ∂scores‖",
            xscale="log",
            yscale="log",
        )
    ),
)
def softmax_saturation(seed: int, quick: bool, progress: Progress) -> Numbers:
    """Random queries and keys, as at the start of training.

        α = softmax_{t₂}(β q·k),   q, k ∈ ℝ^I with independent components of mean 0 and variance 1
        Var(q·k) = I,   so β = 1/√I gives scores of variance 1;   ∂α/∂score = diag(α) − ααᵀ

    McAllester's problems, 2 (papers.bib: mcallester2020problems); He He's lecture, "Why do we need layer
    normalization"; Vaswani et al. 2017 (papers.bib: vaswani2017attention).
    """
    rows, keys = (200 if quick else 4000), 32
    rng = torch.Generator().manual_seed(seed)
    curves: dict[str, list[float]] = {"variance": [], "plain": [], "scaled": []}
    for width in tracked(WIDTHS, progress):
        query = torch.randn(rows, 1, width, generator=rng, dtype=torch.float64)
        # A part at a time: the keys are what takes memory.
        scores = torch.cat(
            [
                (part * torch.randn(len(part), keys, width, generator=rng, dtype=torch.float64)).sum(-1)
                for part in torch.split(query, 500)
            ]
        )
        curves["variance"].append(float((scores / width**0.5).var()))
        curves["plain"].append(jacobian_norm(scores))
        curves["scaled"].append(jacobian_norm(scores / width**0.5))
    return {
        "effect": math.log2(curves["scaled"][-1] / curves["plain"][-1]),
        "variance of scores / √I, I = 1024": curves["variance"][-1],
        "gradient, unscaled, I = 1": curves["plain"][0],
        "gradient, unscaled, I = 64": curves["plain"][3],
        "gradient, unscaled, I = 1024": curves["plain"][-1],
        "gradient, scaled, I = 1024": curves["scaled"][-1],
        "width": [*WIDTHS],
        **curves,
    }


# ---- key_elimination

WIDTH, HEADS = 32, 4


@check(
    "A single matrix can replace the query and key matrices of a head without loss; it has as many "
    "parameters if I = J/2.",
    source=f"{PROBLEMS}, problem 5",
    measured="A trained Transformer (width J = 32, 4 heads of width I = 8, sinusoidal positions) is "
    "converted to one matrix W̃ per head; attention weights and log-probabilities are compared on random rows "
    "of 24 words; then W̃ is cut to lower ranks.",
    criterion={
        "no attention weight changes by more than 1e-5": lambda n: (
            n["largest change of an attention weight"] <= 1e-5
        ),
        "no log p changes by more than 1e-4": lambda n: n["largest change of log p"] <= 1e-4,
        "at rank I it goes back to queries and keys as exactly; at I / 2 it does not (mean change above "
        "1e-3)": lambda n: (
            n["largest change of log p, back at rank I"] <= 1e-4
            and n["mean change of log p, back at rank I / 2"] > 1e-3
        ),
        "2·I·J = J² at I = J/2": lambda n: (
            n["parameters of a head, I = J/2: queries and keys"] == n["parameters of a head: W̃"]
        ),
    },
    draw=chart(
        lines(
            "rank",
            {"error": "back to queries and keys"},
            f"rank that is kept (I = {WIDTH // HEADS})",
            "mean change of log p",
        ),
        lines(
            "head width",
            {"two matrices": "2·I·J", "one matrix": "J²"},
            f"I (J = {WIDTH})",
            "parameters of a head",
        ),
    ),
)
@torch.no_grad()
def key_elimination(seed: int, quick: bool, progress: Progress) -> Numbers:
    """W̃[k, j₁, j₂] = (1/√I) Σ_i W^Q[k, i, j₁] W^K[k, i, j₂]: the 2·I·J parameters of a head become J².

    McAllester's problems, 5 (papers.bib: mcallester2020problems); lower ranks by Eckart & Young
    (papers.bib: eckart1936approximation).
    """
    shape = {**TRANSFORMER_LM, "width": WIDTH, "heads": HEADS, "positions": "sinusoidal"}
    plain = train_model(language("agreement", seed), shape, 40 if quick else 300, seed)
    progress(0.8)
    rows = torch.randint(4, plain.vocab_size, (16, 24))
    keyless = without_keys(plain)
    words = [tuple(row) for row in rows.tolist()]
    before, after = (attention_layers(it, words)[1] for it in (plain, keyless))
    logp = plain(rows)
    ranks, head_widths = (8, 6, 4, 2, 1), (4, 8, 16, 24)
    errors = [float((with_keys(keyless, rank)(rows) - logp).abs().mean()) for rank in ranks]
    both = [costs(WIDTH, width, 1) for width in head_widths]
    return {
        "largest change of an attention weight": max(
            float((one - other).abs().max()) for one, other in zip(before, after, strict=True)
        ),
        "largest change of log p": float((keyless(rows) - logp).abs().max()),
        "largest change of log p, back at rank I": float((with_keys(keyless)(rows) - logp).abs().max()),
        "mean change of log p, back at rank I / 2": errors[2],
        "parameters of a head, I = J/2: queries and keys": both[2]["query_key"].parameters,
        "parameters of a head: W̃": both[2]["keyless"].parameters,
        "rank": [*ranks],
        "error": errors,
        "head width": [*head_widths],
        "two matrices": [it["query_key"].parameters for it in both],
        "one matrix": [it["keyless"].parameters for it in both],
    }


# ---- attention_losses

LOSSES: dict[str, list[dict[str, Any]]] = {
    "plain": [],
    "focus": [{"kind": "attention_focus", "weight": 0.3}],
    "near": [{"kind": "attention_near", "weight": 0.05}],
}
CAP = 64.0


@torch.no_grad()
def entropy_and_distance(model: Any, rows: list[tuple[int, ...]]) -> tuple[float, float]:
    """Return mean entropy over all layers, and mean squared distance over all but the last."""
    batch, layers = attention_layers(model, rows)
    real_NT = torch.arange(batch.inputs_NT.shape[1]) < batch.lengths_N[:, None]
    real = real_NT[:, None].expand_as(entropy(layers[0]))
    spread = torch.stack([entropy(it)[real].mean() for it in layers]).mean()
    far = torch.stack([distance(it)[real].mean() for it in layers[:-1]]).mean()
    return float(spread), float(far)


@claim(
    "A loss on the entropy of attention makes heads focus, and a capped loss on squared distances makes them "
    "attend to near positions.",
    source=f"{PROBLEMS}, problem 1(b) and 1(c)",
    measured="Transformers of three layers learn an artificial language with distant agreement, alone and "
    "with either loss (weights 0.3 and 0.05): mean entropy and mean squared distance of attention on new "
    "sentences.",
    primary="the smaller of two shares: of the entropy that focus saves, of the squared distance that near "
    "saves",
    matters=0.25,
    assumed=(0.5, 0.15),
    secondary=(
        "focus saves",
        "near saves",
        "focus: nats a token above the truth",
        "plain: nats a token above the truth",
    ),
    draw=chart(
        bars([*LOSSES], "mean entropy of attention, nats", "{}: entropy"),
        bars([*LOSSES], "mean squared distance, without the last layer", "{}: squared distance"),
        sharey=True,
    ),
)
def attention_losses(seed: int, quick: bool, progress: Progress) -> Numbers:
    """L_focus = mean H(α),   L_near = mean min(L_max, Σ α (t₁ − t₂)²) below the last layer.

    McAllester's problems, 1(b) and 1(c) (papers.bib: mcallester2020problems). benchmarks/attention.py
    measures the same on a treebank's sentences.
    """
    truth, rng = Agreement(filler=0.8), Random(seed)
    rows = [(truth.bos, *truth.sample(rng)) for _ in range(100)]
    numbers: dict[str, float] = {}
    data, shape = language("agreement", seed, filler=0.8), {**TRANSFORMER_LM, "layers": 3}
    for name, auxiliary in tracked(LOSSES.items(), progress):
        model = train_model(data, shape, 20 if quick else 250, seed, auxiliary=auxiliary)
        spread, far = entropy_and_distance(model, rows)
        numbers |= {f"{name}: entropy": spread, f"{name}: squared distance": far}
        excess = excess_loss(model, truth, 40 if quick else 200, 900 + seed)
        numbers[f"{name}: nats a token above the truth"] = excess
    focus = 1 - numbers["focus: entropy"] / numbers["plain: entropy"]
    near = 1 - numbers["near: squared distance"] / numbers["plain: squared distance"]
    return {"effect": min(focus, near), "focus saves": focus, "near saves": near, **numbers}


# ---- attention_loss_bounds


@check(
    "In the focus loss, a uniform row of attention over T positions costs ln T; the near loss never exceeds "
    "its cap, for any window length.",
    source=f"{PROBLEMS}, problem 1(b) and 1(c)",
    measured="Uniform and random attention weights over 8, 64 and 512 positions.",
    criterion={
        "a uniform row costs ln T (1e-4)": lambda n: n["largest difference from ln T"] <= 1e-4,
        "no capped distance exceeds the cap": lambda n: n["largest capped distance"] <= CAP,
        "without the cap some do": lambda n: n["largest distance without the cap"] > CAP,
    },
    draw=chart(bars({"largest capped distance": "capped"}, f"largest squared distance (cap {CAP:g})")),
)
def attention_loss_bounds(seed: int, quick: bool, progress: Progress) -> Numbers:  # noqa: ARG001
    """H(1/T, …, 1/T) = ln T;   min(L_max, Σ α (t₁ − t₂)²) ≤ L_max."""
    rng = torch.Generator().manual_seed(seed)
    uniform = {size: torch.full((1, 1, size, size), 1 / size) for size in (8, 64, 512)}
    drawn = [torch.rand(1, 1, size, size, generator=rng).softmax(-1) for size in uniform]
    distances = [distance(it) for it in (*uniform.values(), *drawn)]
    progress(1.0)
    return {
        "largest difference from ln T": max(
            float((entropy(it) - math.log(size)).abs().max()) for size, it in uniform.items()
        ),
        "largest capped distance": max(float(it.clamp(max=CAP).max()) for it in distances),
        "largest distance without the cap": max(float(it.max()) for it in distances),
    }


# ---- loss_shaping

WEIGHTS = (0.0, 0.1)
REGIMES = {"plenty of sentences": (6000, 400), "few sentences": (60, 200)}
SHAPINGS = {"focus": "attention_focus", "near": "attention_near"}


@claim(
    "Loss shaping helps more if training does not find the optimum of the population than if it comes near.",
    source=f"{PROBLEMS}, problem 1(d)",
    measured="Transformers learn an artificial language with distant agreement, alone, with the focus loss "
    "(weight 0.1) and with the near loss (weight 0.01): from 6,000 sentences for 400 updates, and from 60 "
    "sentences for 200. Cross-entropy on new sentences less the truth's.",
    primary="mean gain of the two losses in nats per token, few sentences minus plenty of sentences",
    matters=0.02,
    assumed=(0.06, 0.035),
    secondary=(
        *(f"{regime}, {kind}: gain" for regime in REGIMES for kind in SHAPINGS),
        *(f"{regime}, focus 0" for regime in REGIMES),
    ),
    draw=chart(
        *(
            lines(
                "weight",
                {f"{regime}, {kind}": kind for kind in SHAPINGS},
                "λ (near: × 0.1)",
                "nats a token above the truth",
                title=regime,
            )
            for regime in REGIMES
        )
    ),
    limits="400 updates do not quite reach the optimum, so the second regime only comes near.",
)
def loss_shaping(seed: int, quick: bool, progress: Progress) -> Numbers:
    """min_Φ L(Φ) ≤ L(argmin_Φ [L + λ R]):   λ > 0 cannot help on the population.

    McAllester's problems, 1(d) (papers.bib: mcallester2020problems).
    """
    sizes = {"nouns": 8, "verbs": 8, "fillers": 8}
    truth, numbers = Agreement(**sizes), {}
    todo = [
        (regime, kind, w) for regime in REGIMES for kind in SHAPINGS for w in WEIGHTS if w or kind == "focus"
    ]
    for regime, kind, weight in tracked(todo, progress):
        sentences, updates = REGIMES[regime]
        data = language("agreement", seed, sentences, **sizes)
        loss = {"kind": SHAPINGS[kind], "weight": weight * (0.1 if kind == "near" else 1)}
        auxiliary = [loss] if weight else []
        model = train_model(data, TRANSFORMER_LM, 10 if quick else updates, seed, auxiliary=auxiliary)
        numbers[f"{regime}, {kind} {weight:g}"] = excess_loss(model, truth, 40 if quick else 300, 700 + seed)
    for regime in REGIMES:
        numbers[f"{regime}, near 0"] = numbers[f"{regime}, focus 0"]
    curves = {
        f"{regime}, {kind}": [numbers[f"{regime}, {kind} {weight:g}"] for weight in WEIGHTS]
        for regime in REGIMES
        for kind in SHAPINGS
    }
    gains = {name: curve[0] - curve[-1] for name, curve in curves.items()}
    few, plenty = (
        sum(gains[f"{regime}, {kind}"] for kind in SHAPINGS) / len(SHAPINGS)
        for regime in ("few sentences", "plenty of sentences")
    )
    named = {f"{name}: gain": gain for name, gain in gains.items()}
    return {"effect": few - plenty, **named, **numbers, "weight": [*WEIGHTS], **curves}
