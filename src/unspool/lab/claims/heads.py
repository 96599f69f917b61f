"""Claims about output heads: the rank of a softmax, and the senses and kernels of KerBS."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from random import Random
from typing import Any

import torch
from torch import Tensor

from unspool.data.known_languages import SenseChain
from unspool.data.known_languages.known_language import TrueModel
from unspool.diagnose.softmax_bottleneck import least_error, log_probabilities, smoothed, spectrum
from unspool.evaluate.teacher_forcing import windows
from unspool.heads.kerbs import Kerbs
from unspool.heads.kerbs_kernel import kernel, kernel_profile
from unspool.lab.claim import DEGENERATION, KERBS, Numbers, Progress, check, claim, tracked
from unspool.lab.small_models import RNN_LM, TRANSFORMER_LM, excess_loss, language, train_model
from unspool.plots.seeds import bars, chart, lines

WORDS = 80

# ---- bottleneck_rank

WIDTHS, CONTEXTS, SHARE = (4, 8, 16), 220, 1e-6


def _models(seed: int, width: int, updates: int) -> dict[str, Any]:
    """Return an RNN and a Transformer with a softmax, and one with a mixture of two."""
    data = language("senses", seed, word_count=WORDS)
    rnn = {**RNN_LM, "width": width, "tied": False}
    transformer = {**TRANSFORMER_LM, "width": width, "heads": 2, "layers": 1, "tied": False}
    shapes = {
        "recurrent": {**rnn, "head": {"kind": "softmax"}},
        "Transformer": {**transformer, "head": {"kind": "softmax"}},
        "mixture of softmaxes": {**rnn, "head": {"kind": "mixture"}},
    }
    return {name: train_model(data, shape, updates, seed, lr=1e-2) for name, shape in shapes.items()}


def _draw_ranks(figure: Any, runs: Sequence[Numbers]) -> None:
    kinds = ("recurrent", "Transformer", "mixture of softmaxes")
    bound = {"d + 1": [width + 1.0 for width in WIDTHS]}
    curves = [
        {**run, **bound, **{kind: [run[f"{kind}, d = {width}: rank"] for width in WIDTHS] for kind in kinds}}
        for run in runs
    ]
    errors = {"achieved": "of the model", "least": "no matrix of rank d + 1 has less"}
    chart(
        lines("width", {it: it for it in (*kinds, *bound)}, "d", "rank of log p", ylim=(0, None)),
        lines("width", errors, "d", "‖A − A′‖", ylim=(0, None)),
    )(figure, curves)


def least_underestimation(true_CV: Tensor, tail: float) -> float:
    """Return the least max(A − A′) of a model that misses A = log p* by ‖A − A′‖_F ≥ tail.

        −log(1 + τ/p*) ≤ A − A′ ≤ δ,  τ = 1 − e^(−δ)   ⇒   tail² ≤ Σ max(δ, log(1 + τ/p*))²

    The left bound is Theorem 1 of Finlayson et al. 2024. The sum rises with δ and is 0 at δ = 0.
    """

    def largest(delta: float) -> float:
        above_CV = torch.log1p(-math.expm1(-delta) / true_CV.double()).clamp(min=delta)
        return float(above_CV.square().sum())

    low, high = -60.0, 6.0  # of log δ
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if largest(math.exp(middle)) < tail**2 else (low, middle)
    return math.exp(low)


@check(
    "Log-probabilities of a softmax of width d have rank d + 1 at most, so the distance to the truth is at "
    "least the norm of its other singular values (Eckart–Young), and some token is underestimated.",
    source=f"{DEGENERATION}, the softmax bottleneck, equations 1 and 2",
    measured="An artificial language of 80 words with several senses each, whose truth is known. Recurrent "
    "models and Transformers of width 4, 8 and 16, and as many mixtures of two softmaxes, are trained; the "
    "numerical rank of their log-probabilities over 220 contexts, and their distance from the truth "
    "(impossible words get 1e-6).",
    criterion={
        "no softmax exceeds rank d + 1": lambda n: all(
            n[f"{kind}, d = {w}: rank"] <= w + 1 for kind in ("recurrent", "Transformer") for w in WIDTHS
        ),
        "the truth does, and so does a mixture of softmaxes, at every width": lambda n: (
            n["rank of the truth"] > 17
            and all(n[f"mixture of softmaxes, d = {w}: rank"] > w + 1 for w in WIDTHS)
        ),
        "no model is nearer to the truth than Eckart–Young allows": lambda n: all(
            a >= b for a, b in zip(n["achieved"], n["least"], strict=True)
        ),
        "max(A − A′) is at least its positive bound from the singular values, at every width": lambda n: all(
            n[f"max(A − A′), d = {w}"] >= n[f"bound of max(A − A′), d = {w}"] > 0 for w in WIDTHS
        ),
    },
    draw=_draw_ranks,
)
@torch.no_grad()
def bottleneck_rank(seed: int, quick: bool, progress: Progress) -> Numbers:
    """Measure three widths of three kinds of models on the same contexts.

        A′ = log softmax(W H) = W H − 1·log Σ exp(W H):   rank A′ ≤ d + 1
        ‖A − A′‖_F ≥ √(Σ_{i > d+1} σᵢ(A)²)                Eckart & Young
        max(A − A′) > 0                                   `least_underestimation`

    Finlayson et al. 2024, §2 (papers.bib: finlayson2024closing); Yang et al. 2018
    (papers.bib: yang2018breaking); Eckart & Young 1936 (papers.bib: eckart1936approximation).
    """
    truth, rng = SenseChain(word_count=WORDS), Random(seed)
    rows: list[tuple[int, ...]] = []
    while sum(len(row) for row in rows) < 2 * CONTEXTS:
        rows.append((truth.bos, *truth.sample(rng), truth.eos))
    parts = windows(rows)
    matrix = smoothed(log_probabilities(TrueModel(truth), parts, CONTEXTS).double().exp(), SHARE)
    numbers: dict[str, Any] = {"rank of the truth": spectrum(matrix.float()).rank}
    curves: dict[str, list[float]] = {"least": [], "achieved": []}
    for width in tracked(WIDTHS, progress):
        for name, model in _models(seed, width, 20 if quick else 150).items():
            logp = log_probabilities(model, parts, CONTEXTS)
            numbers[f"{name}, d = {width}: rank"] = spectrum(logp, model.output_matrix).rank
            if name == "recurrent":
                curves["least"].append(least_error(matrix, width + 1))
                curves["achieved"].append(float((matrix - logp.double()).norm()))
                bound = least_underestimation(matrix.exp(), curves["least"][-1])
                numbers[f"bound of max(A − A′), d = {width}"] = bound
                numbers[f"max(A − A′), d = {width}"] = float((matrix - logp.double()).max())
    for width, least, achieved in zip(WIDTHS, *curves.values(), strict=True):
        numbers |= {f"least error, d = {width}": least, f"error, d = {width}": achieved}
    return {**numbers, "width": [*WIDTHS], **curves}


# ---- second_sense

WIDTH, EACH, STEPS = 8, 50, 250


def descend(head: Kerbs, parameters: Sequence[Any], hidden: Tensor, targets: Tensor, rate: float) -> None:
    loss, _ = head.loss(hidden, targets, torch.ones(len(targets)))
    grads = torch.autograd.grad(loss / len(targets), list(parameters))
    for parameter, grad in zip(parameters, grads, strict=True):
        parameter.data -= rate * grad


def _clusters(second: Tensor, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return contexts of word 0 around an axis and `second`, and of words 1 and 2 around ± another axis."""
    axes = torch.eye(WIDTH)
    centres = torch.stack([axes[0], second, axes[2], -axes[2]]).repeat_interleave(EACH, 0)
    hidden = 3 * centres + 0.3 * torch.randn(4 * EACH, WIDTH, generator=rng)
    return hidden, torch.tensor([0, 0, 1, 2]).repeat_interleave(EACH)


@torch.no_grad()
def _sense_shares(head: Kerbs, hidden: Tensor) -> Tensor:
    """Return the use of the two senses of word 0 in each part of its contexts: (2, 2)."""
    scores = kernel(hidden[: 2 * EACH], head.senses_SD, head.theta_S)[:, [0, 3]]
    return scores.softmax(-1).reshape(2, EACH, 2).mean(1)


def _learn(senses_SD: Tensor, hidden: Tensor, targets: Tensor, with_theta: bool) -> list[Tensor]:
    """Return the use of senses before the first step of gradient descent, and after every step."""
    head = Kerbs(WIDTH, torch.tensor([0, 1, 2, 0]), 3)
    head.senses_SD.data = senses_SD
    learnt = [head.senses_SD, head.theta_S] if with_theta else [head.senses_SD]
    shares = [_sense_shares(head, hidden)]
    for _ in range(STEPS):
        descend(head, learnt, hidden, targets, 0.3)
        shares.append(_sense_shares(head, hidden))
    return shares


def _new_sense(seed: int, copied: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return senses, contexts and words: sense 1 in part 1, the new sense near 0 or a copy of it."""
    rng, axes, angle = torch.Generator().manual_seed(seed), torch.eye(WIDTH), 2 * math.pi / 3
    hidden, targets = _clusters(math.cos(angle) * axes[0] + math.sin(angle) * axes[1], rng)
    new = 2 * copied * axes[0] + 0.2 * torch.randn(WIDTH, generator=rng) / WIDTH**0.5
    return torch.stack([2 * axes[0], 2 * axes[2], -2 * axes[2], new]), hidden, targets


def new_sense(seed: int, copied: bool) -> list[Tensor]:
    """Start the first sense in the first part, and the second near 0 or as a copy of the first."""
    return _learn(*_new_sense(seed, copied), with_theta=False)


def random_senses(seed: int) -> list[Tensor]:
    """Start both senses at random, and learn every θ as well."""
    rng = torch.Generator().manual_seed(seed)
    hidden, targets = _clusters(-torch.eye(WIDTH)[0], rng)
    return _learn(torch.randn(4, WIDTH, generator=rng) / WIDTH**0.5, hidden, targets, with_theta=True)


STARTS: dict[str, Callable[[int], list[Tensor]]] = {
    "begun near 0": partial(new_sense, copied=False),
    "begun as a copy": partial(new_sense, copied=True),
    "all begun at random": random_senses,
}


def separation(shares: Tensor) -> float:
    """Return the smaller use of the assigned sense in its part, for the better assignment."""
    return float(torch.stack([shares.diagonal().min(), shares.flip(1).diagonal().min()]).max())


@claim(
    "Lemma A.1: KerBS learns several senses. If the contexts of a word are two disconnected parts and one "
    "sense represents the first, a new sense moves to the second.",
    source=f"{KERBS}, Lemma A.1",
    measured="Fixed context vectors in 8 dimensions: a word with two clusters, 120° apart, and two other "
    "words. One sense starts in the first cluster, the second near 0; gradient descent for 250 steps. Other "
    "starts: the new sense as a copy of the first; all senses and θ at random, clusters 180° apart.",
    primary="use of its own sense in each part, the smaller of the two, minus one half (begun near 0)",
    matters=0.25,
    seeds=20,
    assumed=(0.4, 0.1),
    secondary=tuple(f"{name}: the part's own sense is used" for name in STARTS),
    draw=chart(
        lines(
            "steps",
            [*STARTS],
            "steps of gradient descent",
            "how much each part's\nown sense is used there",
            ylim=(0, 1.03),
        )
    ),
)
def second_sense(seed: int, quick: bool, progress: Progress) -> Numbers:  # noqa: ARG001
    """P(s = ⟨i,1⟩ | y = i) → 1 in part 1   ⇒   ∂L/∂w_i² comes from part 2, and w_i² moves there.

    Miao et al. 2019, appendix A, Lemma A.1 (papers.bib: miao2019kernelized).
    """
    starts = tracked(STARTS.items(), progress)
    curves = {name: [separation(shares) for shares in start(seed)[::10]] for name, start in starts}
    return {
        "effect": curves["begun near 0"][-1] - 0.5,
        **{f"{name}: the part's own sense is used": curve[-1] for name, curve in curves.items()},
        "steps": [*range(0, STEPS + 1, 10)],
        **curves,
    }


# ---- sense_pulls

SENSE_STARTS = {"near 0": False, "a copy": True}


@check(
    "Lemma A.1, equations 1 to 4: the pull on a new sense is the sum of the pulls of both parts, and part 1 "
    "pulls weakly, because its sense represents it already.",
    source=f"{KERBS}, Lemma A.1",
    measured="The clusters and senses of second_sense before the first step, inner products as kernel. The "
    "new sense is near 0 (the premise), or a copy of the first (no premise).",
    criterion={
        "lines 2 and 3 add up to the gradient (1e-4 of its length)": lambda n: all(
            n[f"{it}: error of lines 2 and 3"] <= 1e-4 for it in SENSE_STARTS
        ),
        "line 2 is at most ε times the lengths of part 1's vectors": lambda n: all(
            n[f"{it}: pull of part 1"] <= n[f"{it}: bound of the pull of part 1"] for it in SENSE_STARTS
        ),
        "near 0, ε is below 0.05, and part 2 pulls a hundred times as strongly": lambda n: (
            n["near 0: ε"] < 0.05 and n["near 0: pull of part 2"] > 100 * n["near 0: pull of part 1"]
        ),
        "for a copy the premise fails (ε above 0.3), and part 1 pulls ten times as strongly as near 0": (
            lambda n: n["a copy: ε"] > 0.3 and n["a copy: pull of part 1"] > 10 * n["near 0: pull of part 1"]
        ),
    },
    draw=chart(
        bars(
            {f"{it}: pull of part {part}": f"{it}, part {part}" for it in SENSE_STARTS for part in (1, 2)},
            "pull on the new sense",
            xscale="log",
        )
    ),
)
def sense_pulls(seed: int, quick: bool, progress: Progress) -> Numbers:  # noqa: ARG001
    """Lines 2 and 3:   Σ_h R exp(h·w₂) h / ((exp(h·w₁) + exp(h·w₂)) (exp(h·w₁) + exp(h·w₂) + R)).

    Miao et al. 2019, appendix A, equations 1 to 4 (papers.bib: miao2019kernelized).
    """
    numbers: dict[str, float] = {}
    for name, copied in tracked(SENSE_STARTS.items(), progress):
        senses_SD, hidden, _ = _new_sense(seed, copied)
        hidden_PED, (first_D, *others, new_D) = (
            hidden[: 2 * EACH].double().view(2, EACH, -1),
            senses_SD.double(),
        )
        new_D = new_D.clone().requires_grad_()
        one_PE, two_PE = (hidden_PED @ first_D).exp(), (hidden_PED @ new_D).exp()
        rest_PE = sum((hidden_PED @ other_D).exp() for other_D in others)
        both_PE = one_PE + two_PE
        loss = (both_PE / (both_PE + rest_PE)).log().sum()
        (gradient_D,) = torch.autograd.grad(loss, new_D)
        share_PE = (rest_PE * two_PE / (both_PE * (both_PE + rest_PE))).detach()
        pull_PD = (share_PE[..., None] * hidden_PED).sum(1)
        epsilon = float((two_PE / both_PE)[0].detach().max())
        numbers |= {
            f"{name}: ε": epsilon,
            f"{name}: pull of part 1": float(pull_PD[0].norm()),
            f"{name}: pull of part 2": float(pull_PD[1].norm()),
            f"{name}: bound of the pull of part 1": epsilon * float(hidden_PED[0].norm(dim=-1).sum()),
            f"{name}: error of lines 2 and 3": float(
                (pull_PD.sum(0) - gradient_D).norm() / gradient_D.norm()
            ),
        }
    return numbers


# ---- spread_sign


@check(
    "Lemma A.2, equations 9 to 11, for small θ > 0: where cosines are smaller, θ tends to rise; but equation "
    "11 as printed has no positive root.",
    source=f"{KERBS}, Lemma A.2",
    measured="F₁ of equation 11 and its derivatives for 0 < θ ≤ 1/2 and 0 < cos ≤ 1; the derivative of the "
    "exact kernel by θ; and θ of one word, learnt to convergence from θ = 0.1 at three spreads of its "
    "contexts (the experiment of wider_senses).",
    criterion={
        "∂F₁/∂cos · ∂F₁/∂θ > 0 everywhere": lambda n: n["least product of the derivatives of F₁"] > 0,
        "F₁ < 0 everywhere: equation 11 has no root": lambda n: n["largest F₁"] < 0,
        "the exact ∂K/∂θ changes its sign at cos = 2/3 for θ → 0 (1e-3)": lambda n: (
            abs(n["cos where ∂K/∂θ changes its sign"] - 2 / 3) <= 1e-3
        ),
        "θ at convergence rises with the spread": lambda n: (
            n["θ, spread 0.5"] < n["θ, spread 1"] < n["θ, spread 2"]
        ),
    },
    draw=chart(lines("spread", {"θ": "θ at convergence"}, "spread of the word's contexts", "θ")),
)
def spread_sign(seed: int, quick: bool, progress: Progress) -> Numbers:
    """F₁ = exp(−θ cos) − 1 + θ cos exp(−θ cos).

    Miao et al. 2019, appendix A, equations 9 to 11 (papers.bib: miao2019kernelized).
    """
    grid = (torch.linspace(0.01, end, 50, dtype=torch.float64) for end in (0.5, 1.0))
    theta_TC, cos_TC = (it.requires_grad_() for it in torch.meshgrid(*grid, indexing="ij"))
    turn_TC = theta_TC * cos_TC
    f_TC = torch.expm1(-turn_TC) + turn_TC * torch.exp(-turn_TC)
    by_theta_TC, by_cos_TC = torch.autograd.grad(f_TC.sum(), (theta_TC, cos_TC))
    small = torch.tensor(1e-4, dtype=torch.float64).expand(1000).clone().requires_grad_()
    cos_C = torch.linspace(0.5, 0.8, 1000, dtype=torch.float64)
    (slope_C,) = torch.autograd.grad(kernel_profile(cos_C, small).sum(), small)
    (turns,) = (slope_C[1:].sign() != slope_C[:-1].sign()).nonzero(as_tuple=True)
    spreads = (0.5, 1.0, 2.0)
    thetas = [learnt_theta(seed, it, 20 if quick else 800, 0.1) for it in tracked(spreads, progress)]
    return {
        "least product of the derivatives of F₁": float((by_theta_TC * by_cos_TC).detach().min()),
        "largest F₁": float(f_TC.detach().max()),
        "cos where ∂K/∂θ changes its sign": float(cos_C[turns[0]]) if len(turns) == 1 else 0.0,
        **{f"θ, spread {spread:g}": theta for spread, theta in zip(spreads, thetas, strict=True)},
        "spread": [*spreads],
        "θ": thetas,
    }


# ---- wider_senses

SPREADS = tuple(0.3 + 0.2 * k for k in range(8))


def learnt_theta(seed: int, spread: float, steps: int = 60, begin: float = 0.0) -> float:
    """Learn only θ of one word in a cluster, among twenty other words."""
    rng = torch.Generator().manual_seed(seed)
    near = torch.eye(WIDTH)[0] + spread * torch.randn(2 * EACH, WIDTH, generator=rng) / WIDTH**0.5
    contexts = torch.cat([near, torch.randn(2 * EACH, WIDTH, generator=rng)])
    hidden = 8**0.5 * torch.nn.functional.normalize(contexts, dim=-1)
    targets = torch.cat([torch.zeros(2 * EACH).long(), 1 + torch.arange(2 * EACH) % 20])
    head = Kerbs(WIDTH, torch.arange(21), 21)
    head.senses_SD.data = torch.zeros(21, WIDTH)
    head.senses_SD.data[0, 0] = 1.5 * 8**0.5
    head.theta_S.data.fill_(begin)
    for _ in range(steps):
        descend(head, [head.theta_S], hidden, targets, 5.0)
    return float(head.theta_S.detach()[0])


@claim(
    "Lemma A.2: KerBS learns variances. The wider a word's contexts are spread, the larger is its θ.",
    source=f"{KERBS}, Lemma A.2",
    measured="Fixed context vectors in 8 dimensions: one word's around an axis, at eight spreads, and "
    "twenty other words' anywhere. Only the word's θ is learnt, by 60 steps of gradient descent.",
    primary="θ at the widest spread minus θ at the narrowest",
    matters=0.5,
    seeds=20,
    assumed=(1.0, 0.4),
    secondary=("steps of the spread at which θ rises, of 7", "θ, narrowest", "θ, widest"),
    draw=chart(lines("spread", {"θ": "θ of the word"}, "spread of the word's contexts", "θ learnt")),
    limits="The appendix proves it for small θ and one sense, with an equation (11) that has no positive "
    "root as printed; what is measured is the statement.",
)
def wider_senses(seed: int, quick: bool, progress: Progress) -> Numbers:  # noqa: ARG001
    """K_θ(h, w) = |h||w| (a exp(−θ cos(h, w)) − a):   a larger θ is flatter at small angles.

    Miao et al. 2019, appendix A, Lemma A.2 (papers.bib: miao2019kernelized).
    """
    thetas = [learnt_theta(seed, spread) for spread in tracked(SPREADS, progress)]
    return {
        "effect": thetas[-1] - thetas[0],
        "θ, narrowest": thetas[0],
        "θ, widest": thetas[-1],
        "steps of the spread at which θ rises, of 7": sum(b > a for a, b in pairwise(thetas)),
        "spread": [*SPREADS],
        "θ": thetas,
    }


# ---- kerbs_against_softmax

SOFTMAX_HEAD = {"kind": "softmax", "tied": False}
KERBS_HEAD = {"kind": "kerbs", "senses": 2.0}
REALLOCATE = [{"kind": "kerbs_reallocate", "every": 20, "share": 0.1, "rate": 0.05}]
HEADS: dict[str, tuple[int, dict[str, Any], list[dict[str, Any]]]] = {
    "softmax": (16, SOFTMAX_HEAD, []),
    "softmax, wider": (21, SOFTMAX_HEAD, []),
    "KerBS": (16, KERBS_HEAD, REALLOCATE),
    "KerBS, no kernel": (16, {**KERBS_HEAD, "kernel": False}, REALLOCATE),
    "KerBS, no allocation": (16, KERBS_HEAD, []),
}
"""Name → width, head and training hooks."""


@claim(
    "A head with several senses per word, a kernel and dynamic reallocation of senses (KerBS) predicts "
    "better than a softmax of the same width.",
    source=f"{KERBS}, appendix B, with the results of section 4",
    measured="GRU language models (width 16) of an artificial language in which words have one to four "
    "senses: 400 updates, the same batches. Cross-entropy on 300 held-out sentences less that of the truth. "
    "The wider softmax (21) has about as many weights as KerBS with two senses a word.",
    primary="nats per token above the truth, softmax minus KerBS",
    matters=0.01,
    assumed=(0.03, 0.015),
    secondary=("gain over a softmax with as many weights", "gain of the kernel", "gain of reallocation"),
    draw=chart(bars([*HEADS], "nats a token above the truth (less is better)")),
    limits="The paper's results are BLEU of translations and perplexities of real text with models hundreds "
    "of times as large; benchmarks/heads.py measures those on real text.",
)
def kerbs_against_softmax(seed: int, quick: bool, progress: Progress) -> Numbers:
    """P(y = i) = Σ_j P(s = ⟨i,j⟩),   P(s) = softmax of K_θ(h, w_s)     against   softmax(W h).

    Miao et al. 2019, §4 and appendix B (papers.bib: miao2019kernelized).
    """
    truth = SenseChain(word_count=WORDS, seed=seed)
    data = language("senses", seed, 4000, word_count=WORDS, seed=seed)
    numbers: dict[str, float] = {}
    for name, (width, head, hooks) in tracked(HEADS.items(), progress):
        shape = {**RNN_LM, "width": width, "head": head}
        model = train_model(data, shape, 30 if quick else 400, seed, lr=1e-2, hooks=hooks)
        numbers[name] = excess_loss(model, truth, 60 if quick else 300, 1000 + seed)
        numbers[f"{name}: weights"] = sum(it.numel() for it in model.parameters())
    return {
        "effect": numbers["softmax"] - numbers["KerBS"],
        "gain over a softmax with as many weights": numbers["softmax, wider"] - numbers["KerBS"],
        "gain of the kernel": numbers["KerBS, no kernel"] - numbers["KerBS"],
        "gain of reallocation": numbers["KerBS, no allocation"] - numbers["KerBS"],
        **numbers,
    }
