"""Claims about the geometry of the output layer: gradients, possible rankings, and proofs of support."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from statistics import fmean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import unspool as us
from unspool.basis import BasisTest
from unspool.lab.claim import Numbers, Progress, claim, points, tracked
from unspool.lab.small_models import prompts_of
from unspool.plots.seeds import bars, chart, lines

# ---- gradient_bottleneck

WORDS, CONTEXTS, TRUE_WIDTH, BODY = 1000, 512, 4, 64
WIDTHS = (8, 32, 128)
UPDATES = 16_000
"""Of width 1: an update costs width · (BODY + WORDS) multiplications for each of its examples."""
RATES = (3e-3, 1e-2)


def inside(matrix_VD: Tensor, gradient_NV: Tensor) -> float:
    """Return the share of the squared length of the gradients that is in the column space of the matrix."""
    basis_VD = torch.linalg.qr(matrix_VD.double()).Q
    gradient_NV = gradient_NV.double()
    return float((gradient_NV @ basis_VD).square().sum() / gradient_NV.square().sum())


@torch.enable_grad()
def learn(true_CV: Tensor, width: int, updates: int, rate: float, seed: int) -> tuple[float, float]:
    """Return KL(p* ‖ p̂) after training, and the share `inside` half-way."""
    rng = torch.Generator().manual_seed(seed)
    head = nn.Linear(width, WORDS, bias=False)
    body = nn.Sequential(nn.Embedding(CONTEXTS, BODY), nn.Tanh(), nn.Linear(BODY, width))
    optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates)
    share = 0.0
    for update in range(updates):
        context_N = torch.randint(CONTEXTS, (128,), generator=rng)
        word_N = torch.multinomial(true_CV[context_N], 1, generator=rng)[:, 0]
        logits_NV = head(body(context_N))
        if update == updates // 2:
            seen_NV = torch.eye(WORDS)[word_N]
            share = inside(head.weight.detach(), logits_NV.detach().softmax(-1) - seen_NV)
        optimizer.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(logits_NV, word_N))
        optimizer.step()
        schedule.step()
    logp_CV = head(body(torch.arange(CONTEXTS))).detach().log_softmax(-1)
    return float((true_CV * (true_CV.log() - logp_CV)).sum(-1).mean()), share


@claim(
    "A narrow output layer lets little of the logit gradient through, and at equal compute learns less well "
    "even what it can express.",
    source="Godey & Artzi 2026, Lost in Backpropagation: The LM Head is a Gradient Bottleneck, abstract",
    measured=f"A softmax of width {TRUE_WIDTH} draws words ({WORDS:,} kinds) in {CONTEXTS} contexts. "
    "Students with one body and output layers of width 8, 32 and 128, which can all express it, learn from "
    "samples with equal numbers of multiplications (2,000, 500 and 125 updates), at the better of two "
    "learning rates. Half-way, the share of the squared gradient p̂ − e_y in the column space of W.",
    primary="nats above the truth, width 8 minus width 128",
    matters=0.02,
    assumed=(0.1, 0.05),
    secondary=(
        *(f"width {width}: nats above the truth" for width in WIDTHS),
        *(f"width {width}: share of the gradient" for width in WIDTHS),
        *(f"width {width}: d / V" for width in WIDTHS),
    ),
    draw=chart(
        *(
            lines(
                "width", curves, "width of the output layer", label, ticks=WIDTHS, xscale="log", yscale="log"
            )
            for curves, label in (
                ({"nats above the truth": "at equal compute"}, "nats above the truth"),
                ({"share of the gradient": "measured", "d / V": "d / V"}, "share inside col W"),
            )
        )
    ),
    limits="One small body; the paper's models are a million times as large.",
    comment="The first half of the statement holds: at every width the share is close to d / V. The second "
    "half does not hold here. At equal compute, width 8 makes 16 times as many updates as width 128, and "
    "these count for more than the gradient that it loses. With as many updates for each width the result "
    "may differ.",
)
def gradient_bottleneck(seed: int, quick: bool, progress: Progress) -> Numbers:
    """‖P_W (p̂ − e_y)‖² / ‖p̂ − e_y‖²,   P_W the projection on the columns of W: the body sees no more.

    Godey & Artzi 2026 (papers.bib: godey2026lost).
    """
    rng = torch.Generator().manual_seed(seed)
    teacher_VD, hidden_CD = (torch.randn(size, TRUE_WIDTH, generator=rng) for size in (WORDS, CONTEXTS))
    true_CV = (1.5 * hidden_CD @ teacher_VD.T).softmax(-1)
    curves: dict[str, list[float]] = {"nats above the truth": [], "share of the gradient": [], "d / V": []}
    for width in tracked(WIDTHS, progress):
        updates = UPDATES // width // (50 if quick else 1)
        nats, share = min(learn(true_CV, width, updates, rate, seed) for rate in RATES)
        for curve, value in zip(curves.values(), (nats, share, width / WORDS), strict=True):
            curve.append(value)
    return {
        "effect": curves["nats above the truth"][0] - curves["nats above the truth"][-1],
        **points("width {1}: {0}", WIDTHS, curves),
        "width": [*WIDTHS],
        **curves,
    }


# ---- ranking_signature

SIZES = (1, 2, 4, 8, 16, 32, 64)
SIGNATURE = 64


def can_rank(matrix_VD: NDArray[np.float64], ranking: Sequence[int]) -> bool:
    """Return whether some h gives these tokens the highest logits, in this order; both answers are proved.

        h with D h > 0,   or y ≥ 0, Σ y = 1 with Dᵀ y = 0 (Gordan),   D: differences of the rows of W

    Non-negative least squares, min ‖Dᵀ y‖² + (Σ y − 1)², finds either: h = Dᵀ y has D h ≥ 1 − Σ y > 0.
    """
    from scipy.optimize import nnls  # slow to import

    first, others = list(ranking), np.delete(np.arange(len(matrix_VD)), ranking)
    rows_ND = np.concatenate(
        [matrix_VD[first[:-1]] - matrix_VD[first[1:]], matrix_VD[first[-1]] - matrix_VD[others]]
    )
    rows_ND /= np.linalg.norm(rows_ND, axis=1, keepdims=True)
    system = np.vstack([rows_ND.T, np.ones(len(rows_ND))])
    y_N, _ = nnls(system, np.eye(len(system))[-1], maxiter=50_000)
    h_D = rows_ND.T @ y_N
    if (rows_ND @ h_D).min() > 0:
        return True
    if np.linalg.norm(h_D) > 1e-7 * y_N.sum():
        raise ArithmeticError(f"neither answer is proved for a ranking of {len(ranking)} tokens")
    return False


def longest(matrix_VD: NDArray[np.float64], ranking: Sequence[int]) -> int:
    """Return how many of the tokens the matrix can rank so, by bisection: a longer ranking demands more."""
    low, high = 0, len(ranking)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if can_rank(matrix_VD, ranking[:middle]) else (low, middle - 1)
    return low


@claim(
    f"A model's ranking of its {SIGNATURE} most probable tokens is its signature: another model's output "
    "layer cannot produce it.",
    source="Finlayson et al. 2026, Token Rankings are Unforgeable Language Model Signatures, abstract",
    measured="The rankings of the built-in model `bible` (width 160, 2,048 tokens) after 6 prompts (an "
    "opening and 12 tokens sampled with the seed): how many of its 64 most probable tokens can the output "
    "matrix of `bible-weak` (width 64, the same training text) put in this order, and `bible`'s own matrix "
    "with its rows shuffled? A linear program decides, with a certificate for either answer.",
    primary=f"share of the rankings of {SIGNATURE} tokens that the matrix of `bible-weak` cannot produce",
    matters=0.9,
    contradicted_below=0.5,
    assumed=(0.99, 0.03),
    secondary=(
        *(f"{name}: tokens in order, mean" for name in ("bible-weak", "shuffled")),
        "bible itself: rankings of 64 that it can produce",
    ),
    draw=chart(
        lines(
            "tokens",
            {"bible-weak": "bible-weak", "shuffled": "rows shuffled"},
            "tokens of the ranking",
            "rankings that can be produced",
            ticks=SIZES,
            xscale="log",
            ylim=(-0.03, 1.03),
        )
    ),
    limits="Any hidden vector is allowed, also those that no text leads to.",
)
@torch.no_grad()
def ranking_signature(seed: int, quick: bool, progress: Progress) -> Numbers:
    """∃ h: w_{r₁}·h > … > w_{r_k}·h > w_j·h for all other j.

    Finlayson et al. 2026 (papers.bib: finlayson2026token).
    """
    model: Any = us.load("bible")
    prompts = prompts_of(model, 1 if quick else 6, seed)
    rankings = model.start(prompts)[0].logp_NV.topk(SIZES[-1]).indices.tolist()
    own_VD, weak_VD = (
        us.load(name).state_dict()["embed.weight"].double().numpy() for name in ("bible", "bible-weak")
    )
    shuffled_VD = np.random.default_rng(seed).permutation(own_VD)
    own = [can_rank(own_VD, ranking) for ranking in rankings]
    found = {
        name: [longest(matrix_VD, ranking) for ranking in tracked(rankings, progress)]
        for name, matrix_VD in {"bible-weak": weak_VD, "shuffled": shuffled_VD}.items()
    }
    return {
        "effect": fmean([at < SIGNATURE for at in found["bible-weak"]]),
        **{f"{name}: tokens in order, mean": fmean(counts) for name, counts in found.items()},
        "bible itself: rankings of 64 that it can produce": fmean(own),
        "tokens": [*SIZES],
        **{name: [fmean([at >= size for at in counts]) for size in SIZES] for name, counts in found.items()},
    }


# ---- dropped_with_proof

CUTS: dict[str, Any] = {"top-k 40": us.TopK(40), "top-p 0.9": us.TopP(0.9), "min-p 0.1": us.MinP(0.1)}
HALVES = tuple(f"{name}: proved, {half} entropy" for name in CUTS for half in ("higher", "lower"))


@claim(
    "Truncation drops tokens that are provably possible if its own threshold is right, and more where the "
    "entropy is high.",
    source="Finlayson et al. 2024, Closing the Curious Case of Neural Text Degeneration, §4",
    measured="The built-in model `bible` after 16 prompts (an opening and 12 tokens sampled with the seed). "
    "For each sampler and context, 12 dropped tokens are drawn in proportion to p̂, and the basis-aware test "
    "of rank 32 decides at τ = the largest probability that was dropped.",
    primary="share of what top-p 0.9 drops that is proved possible, 8 prompts of higher minus 8 of lower "
    "entropy",
    matters=0.05,
    seeds=12,
    assumed=(0.2, 0.15),
    secondary=HALVES,
    draw=chart(bars(HALVES, "share of the dropped probability that is proved possible", xlim=(0, 1))),
    limits="A proof assumes that the model minimises cross-entropy and that no token is underestimated by "
    "more than the threshold allows.",
)
@torch.no_grad()
def dropped_with_proof(seed: int, quick: bool, progress: Progress) -> Numbers:
    """P(i accepted | i ~ p̂, i dropped),   τ = max p̂ of dropped tokens: threshold sampling drops all of them.

    Finlayson et al. 2024, §4 (papers.bib: finlayson2024closing).
    """
    model: Any = us.load("bible")
    logp_CV = model.start(prompts_of(model, 2 if quick else 16, seed))[0].logp_NV
    order_C = (logp_CV.exp() * logp_CV).sum(-1).argsort()  # the highest entropy first
    test, rng = BasisTest(model.state_dict()["embed.weight"], rank=32), Random(seed)
    numbers: dict[str, float] = {}
    for name, transform in tracked(CUTS.items(), progress):
        dropped_CV = (~us.survivors(transform, logp_CV)).numpy()
        for half, contexts in zip(("higher", "lower"), order_C.chunk(2), strict=True):
            proved = []
            for row in contexts.tolist():
                p_V = logp_CV[row].double().softmax(-1).numpy()
                (tokens,) = dropped_CV[row].nonzero()
                drawn = rng.choices(tokens.tolist(), p_V[tokens].tolist(), k=12)
                verdicts = test.step(p_V).verdicts(drawn, tau=float(p_V[tokens].max()))
                proved.append(fmean([it.accepted for it in verdicts]))
            numbers[f"{name}: proved, {half} entropy"] = fmean(proved)
    higher, lower = (numbers[f"top-p 0.9: proved, {half} entropy"] for half in ("higher", "lower"))
    return {"effect": higher - lower, **numbers}
