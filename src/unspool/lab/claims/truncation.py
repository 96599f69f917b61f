"""Claims about truncation: one k for all contexts, a safe threshold, and the basis-aware test.

All are measured on a trigram model of an artificial language whose true probabilities are known.
"""

from __future__ import annotations

import math
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor

import unspool as us
from unspool.basis import BasisTest
from unspool.data.known_languages import ZipfMarkov
from unspool.diagnose.overestimation import failures, optimality_gap, underestimation
from unspool.lab.claim import DEGENERATION, LECTURE, Numbers, Progress, check, claim, tracked
from unspool.lab.small_models import at_optimum, differences, sample_contexts, train_narrow
from unspool.plots.seeds import bars, chart, lines

# ---- one_k

KS = (1, 2, 4, 8, 16, 32)
PS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98)


def overlap(kept_CV: Tensor, true_CV: Tensor) -> float:
    """Return the mean F₁ = 2|K ∩ S| / (|K| + |S|) of kept and possible words."""
    possible_CV = true_CV > 0
    both_C = (kept_CV & possible_CV).sum(-1).double()
    return float((2 * both_C / (kept_CV.sum(-1) + possible_CV.sum(-1))).mean())


@claim(
    "A single k for different next-word distributions is suboptimal; top-p, whose k is dynamic, fits them.",
    source=f"{LECTURE}, Truncated sampling: which k to choose?",
    measured="An artificial language in which 1 to 32 words can follow a context. F₁ of the words that top-k "
    "and top-p keep and the possible ones, for six settings each: on a trained model, and on the truth mixed "
    "with 5 % of noise.",
    primary="F₁ in a trained model, best of six p minus best of six k",
    matters=0.05,
    assumed=(0.09, 0.03),
    secondary=(
        "truth with a tail: best p minus best k",
        "trained model: best of one p",
        "trained model: best of one k",
    ),
    draw=chart(
        *(
            lines(
                "setting",
                {f"{name}: top-k": "top-k", f"{name}: top-p": "top-p"},
                "k above, p below",
                "F₁ of kept and possible words",
                ticks={at: f"{k}\n{p:g}" for at, (k, p) in enumerate(zip(KS, PS, strict=True))},
                title=name,
            )
            for name in ("truth with a tail", "trained model")
        ),
        sharey=True,
    ),
)
@torch.no_grad()
def one_k(seed: int, quick: bool, progress: Progress) -> Numbers:
    """Top-k keeps k words everywhere;   top-p keeps the fewest words that have mass p.

    Holtzman et al. 2020, §3 (papers.bib: holtzman2020curious); Fan et al. 2018
    (papers.bib: fan2018hierarchical).
    """
    language = ZipfMarkov(word_count=150, branching=32, decay=0.5, seed=seed)
    model = train_narrow(language, 64, 4000, 60 if quick else 700, 512, seed)
    progress(0.8)
    context_C2, true_CV = sample_contexts(language, 60 if quick else 500, seed)
    # Not all words of the tail alike: what is equally probable cannot be cut apart.
    noise_CV = torch.empty_like(true_CV).exponential_(generator=torch.Generator().manual_seed(seed))
    tail_CV = (0.95 * true_CV + 0.05 * noise_CV / noise_CV.sum(-1, keepdim=True)).log()
    numbers: dict[str, Any] = {}
    for name, logp_CV in {"truth with a tail": tail_CV.float(), "trained model": model(context_C2)}.items():
        by_k = [overlap(us.survivors(us.TopK(k), logp_CV), true_CV) for k in KS]
        by_p = [overlap(us.survivors(us.TopP(p), logp_CV), true_CV) for p in PS]
        numbers |= {f"{name}: top-k": by_k, f"{name}: top-p": by_p}
        numbers |= {f"{name}: best of one k": max(by_k), f"{name}: best of one p": max(by_p)}
    sizes_C = (true_CV > 0).sum(-1).double()
    tail, trained = (
        numbers[f"{name}: best of one p"] - numbers[f"{name}: best of one k"]
        for name in ("truth with a tail", "trained model")
    )
    return {
        "effect": trained,
        "truth with a tail: best p minus best k": tail,
        "words that can follow, 10 % of contexts have at most": float(sizes_C.quantile(0.1)),
        "… 90 % have at most": float(sizes_C.quantile(0.9)),
        **numbers,
        "setting": [*range(len(KS))],
    }


# ---- safe_threshold

TAUS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 0.6)


@check(
    "Truncation at a threshold above 1 − e^(−δ) samples only tokens that are truly possible, where δ bounds "
    "how far log-probabilities are underestimated.",
    source=f"{DEGENERATION}, Theorem 1 and Corollary 1",
    measured="A trigram model with a softmax of width 8 learns an artificial language of 100 words whose "
    "truth is known. For each of 400 contexts, δ is computed, and the tokens above τ = 1 − e^(−δ) are "
    "compared with the possible ones.",
    criterion={
        "there are tokens above their context's τ, and none of them is impossible": lambda n: (
            n["kept above τ"] > 0 and n["impossible among them"] == 0
        ),
        "no probability is overestimated by more than its context's τ (1e-6)": lambda n: (
            n["largest overestimation beyond its context's τ"] <= 1e-6
        ),
        "it is the threshold that does it: above τ / 10, impossible tokens are kept": lambda n: (
            n["impossible above τ / 10"] > 0
        ),
    },
    draw=chart(
        lines(
            "threshold",
            {"share": "of the tokens kept", "mass": "of the probability kept"},
            "a fixed threshold",
            "impossible",
            xscale="log",
        )
    ),
    limits="The theorem is exact, so only its premises could fail; its price is the share of the truth that "
    "the threshold discards, which is reported. δ is known here because the truth is; for a real model it "
    "must be estimated.",
)
@torch.no_grad()
def safe_threshold(seed: int, quick: bool, progress: Progress) -> Numbers:
    """log p* − log p̂ ≤ δ everywhere  ⇒  p̂ − p* ≤ 1 − e^(−δ) = τ  ⇒  (p̂ᵢ > τ ⇒ p*ᵢ > 0).

    Finlayson et al. 2024, §3, Theorem 1 and Corollary 1 (papers.bib: finlayson2024closing).
    """
    language = ZipfMarkov(word_count=100, branching=12, seed=seed)
    model = train_narrow(language, 8, 3000, 60 if quick else 600, 512, seed)
    progress(0.8)
    context_C2, true_CV = sample_contexts(language, 60 if quick else 400, seed)
    logp_CV = model(context_C2)
    kept = impossible = tenth_impossible = 0
    recall = worst = 0.0
    for true_V, logp_V in zip(true_CV[:, None], logp_CV[:, None], strict=True):
        under = underestimation(logp_V, true_V)
        worst = max(worst, under.overestimation - under.tau)
        above = failures(logp_V, true_V, min(under.tau, 1 - 1e-12))
        kept, impossible = kept + above.kept, impossible + above.impossible
        recall += float(true_V[logp_V.double().exp() > under.tau].sum()) / len(true_CV)
        tenth_impossible += failures(logp_V, true_V, under.tau / 10).impossible
    overall = underestimation(logp_CV, true_CV)
    by_tau = [failures(logp_CV, true_CV, tau) for tau in TAUS]
    return {
        "δ, the largest anywhere": overall.delta,
        "δ of a context, median": overall.quantiles[0.5],
        "τ = 1 − e^(−δ), of the median δ": 1 - float(torch.tensor(-overall.quantiles[0.5]).exp()),
        "largest overestimation beyond its context's τ": worst,
        "kept above τ": kept,
        "impossible among them": impossible,
        "impossible above τ / 10": tenth_impossible,
        "of the truth's mass, still possible above τ": recall,
        "threshold": [*TAUS],
        "share": [it.share for it in by_tau],
        "mass": [it.mass for it in by_tau],
    }


# ---- truncation_constraint


@check(
    "The truncation constraint alone proves token i possible exactly if p̂ᵢ > 1 − e^(−δ).",
    source=f"{DEGENERATION}, Corollary 2",
    measured="Forty random distributions of 12 tokens, with δ between 0.02 and 1: for each token, whether a "
    "linear program finds p with Σ p = 1, 0 ≤ p ≤ e^δ p̂ and pᵢ = 0, and whether the basis-aware test at "
    "rank 0 accepts the token.",
    criterion={
        "the program has no solution exactly where p̂ᵢ > 1 − e^(−δ)": lambda n: (
            n["differences between program and threshold"] == 0
        ),
        "and where (1 − p̂ᵢ) e^δ < 1": lambda n: n["differences between program and mass"] == 0,
        "the basis-aware test at rank 0 says the same": lambda n: (
            n["differences between program and test at rank 0"] == 0
        ),
        "both cases occur": lambda n: 0 < n["tokens proved possible"] < n["tokens"],
    },
    draw=chart(bars(("tokens proved possible", "differences between program and threshold"), "tokens")),
)
def truncation_constraint(seed: int, quick: bool, progress: Progress) -> Numbers:
    """∄ p: Σ p = 1, 0 ≤ p ≤ e^δ p̂, pᵢ = 0   ⇔   (1 − p̂ᵢ) e^δ < 1   ⇔   p̂ᵢ > 1 − e^(−δ).

    Finlayson et al. 2024, §3, Corollary 2 (papers.bib: finlayson2024closing).
    """
    from scipy.optimize import linprog  # slow to import

    rng, size = np.random.default_rng(seed), 12
    proved, counts = 0, dict.fromkeys(("threshold", "mass", "test at rank 0"), 0)
    test = BasisTest(torch.from_numpy(rng.standard_normal((size, 2))), rank=0)
    draws = range(20 if quick else 40)
    for _ in tracked(draws, progress):
        p_V, delta = rng.dirichlet(np.full(size, 0.4)), rng.uniform(0.02, 1)
        p_V = np.maximum(p_V, 1e-6) / np.maximum(p_V, 1e-6).sum()
        tau, upper_V = -math.expm1(-delta), p_V * math.exp(delta)
        accepted_V = test.mask(p_V, tau)
        for i in range(size):
            bounds = [(0, 0 if j == i else upper) for j, upper in enumerate(upper_V)]
            ones = np.ones((1, size))
            found = linprog(np.zeros(size), A_eq=ones, b_eq=[1.0], bounds=bounds, method="highs")
            is_possible = found.status == 2  # infeasible
            proved += is_possible
            counts["threshold"] += is_possible != (p_V[i] > tau)
            counts["mass"] += is_possible != ((1 - p_V[i]) * math.exp(delta) < 1)
            counts["test at rank 0"] += is_possible != accepted_V[i]
    return {
        "tokens": size * len(draws),
        "tokens proved possible": proved,
        **{f"differences between program and {name}": count for name, count in counts.items()},
    }


# ---- basis_aware_keeps


def compare_tests(test: BasisTest, logp_CV: Tensor, true_CV: Tensor) -> tuple[dict[str, float], list[float]]:
    """Apply threshold and basis-aware test in every context, with δ of the context.

    Return counts and means, and for each context what the test keeps of the truth more than the threshold.
    """
    counts = dict.fromkeys(("threshold", "threshold wrong", "test", "test wrong"), 0.0)
    recall: dict[str, list[float]] = {"threshold": [], "test": []}
    for logp_V, true_V in zip(logp_CV.double(), true_CV.double(), strict=True):
        p_V = logp_V.exp() / logp_V.exp().sum()
        tau = min(underestimation(logp_V[None], true_V[None]).tau, 1 - 1e-9)
        kept = {"threshold": p_V > tau, "test": torch.from_numpy(test.mask(p_V.numpy(), tau))}
        for name, kept_V in kept.items():
            counts[name] += int((kept_V & (true_V > 0)).sum())
            counts[f"{name} wrong"] += int((kept_V & (true_V == 0)).sum())
            recall[name].append(float(true_V[kept_V].sum()))
    means = {f"{name} recall": fmean(shares) for name, shares in recall.items()}
    return {**counts, **means}, differences(recall["test"], recall["threshold"])


@claim(
    "Threshold sampling discards true tokens; the basis-aware test keeps many of them.",
    source=f"{DEGENERATION}, Theorem 2 and the example of figure 3",
    measured="The model of safe_threshold, twice: as trained, and with the hidden vectors that are best for "
    "the truth (there Wᵀp̂ = Wᵀp*, as the theorem requires). In each of 120 contexts, with δ of the "
    "context, a threshold at 1 − e^(−δ) and the basis-aware test at full rank.",
    primary="share of the truth's mass that can be drawn, basis-aware test minus threshold, for each context "
    "at the optimum",
    matters=0.05,
    unit="context",
    assumed=(0.15, 0.07),
    secondary=(
        "at the optimum: test recall",
        "at the optimum: threshold recall",
        "as trained: test recall",
        "as trained: threshold recall",
        "as trained: of what the test adds, possible",
    ),
    draw=chart(
        bars(
            {
                f"{kind}: {rule} recall": f"{kind}, {label}"
                for kind in ("at the optimum", "as trained")
                for rule, label in (("threshold", "threshold"), ("test", "basis-aware"))
            },
            "of the truth's mass, what can still be drawn at τ = 1 − e^(−δ)",
            xlim=(0, 1),
        )
    ),
    limits="Contexts whose best hidden vector is infinite (the truth is on the edge of the model's range) "
    "are left out of the optimum.",
)
@torch.no_grad()
def basis_aware_keeps(seed: int, quick: bool, progress: Progress) -> Numbers:
    """A threshold accepts if p̂ᵢ > 1 − e^(−δ); the basis-aware test accepts more.

        accept i  ⇔  no p with Wᵀp = Wᵀp̂, 0 ≤ p ≤ e^δ p̂, pᵢ = 0

    Finlayson et al. 2024, §4, Theorem 2 and figure 3 (papers.bib: finlayson2024closing).
    """
    language = ZipfMarkov(word_count=100, branching=12, seed=seed)
    model = train_narrow(language, 8, 3000, 60 if quick else 600, 512, seed)
    progress(0.4)
    context_C2, true_CV = sample_contexts(language, 15 if quick else 120, seed)
    matrix_VD = model.head.weight.detach()
    best_CV = at_optimum(matrix_VD, true_CV, pull=0.0)
    reached_C = optimality_gap(best_CV, true_CV, matrix_VD).residual_C < 1e-12
    progress(0.6)
    test = BasisTest(matrix_VD)
    optimal, gains = compare_tests(test, best_CV[reached_C], true_CV[reached_C])
    progress(0.8)
    trained, _ = compare_tests(test, model(context_C2), true_CV)
    gain = trained["test"] + trained["test wrong"] - trained["threshold"] - trained["threshold wrong"]
    wrong = trained["test wrong"] - trained["threshold wrong"]
    return {
        "effect": gains,
        "contexts at the optimum": int(reached_C.sum()),
        **{f"at the optimum: {name}": value for name, value in optimal.items()},
        **{f"as trained: {name}": value for name, value in trained.items()},
        "as trained: of what the test adds, possible": 1 - wrong / gain if gain else 0.0,
    }


# ---- basis_aware_theorem


@check(
    "If Wᵀp̂ = Wᵀp* and δ bounds the underestimation, the basis-aware test accepts only possible tokens.",
    source=f"{DEGENERATION}, Theorem 2 and the example of figure 3",
    measured="Random matrices of 30 tokens and width 20, a random truth with 15 possible tokens in each of "
    "20 contexts, and the hidden vectors that are best for it. Also the document's example: δ = log 1.9, "
    "p̂ = (.331, .498, .171).",
    criterion={
        "no accepted token is impossible": lambda n: n["impossible tokens accepted"] == 0,
        "the test accepts all that the threshold accepts": lambda n: (
            n["lost of what the threshold keeps"] == 0
        ),
        "and more": lambda n: n["accepted beyond the threshold"] > 0,
        "the example: tokens 2 and 3 are accepted": lambda n: n["example as in the document"] == 1.0,
    },
    draw=chart(
        bars(("accepted beyond the threshold", "impossible tokens accepted"), "tokens in 20 contexts")
    ),
)
@torch.no_grad()
def basis_aware_theorem(seed: int, quick: bool, progress: Progress) -> Numbers:  # noqa: ARG001
    """∄ p: Wᵀp = Wᵀp̂, 0 ≤ p ≤ e^δ p̂, pᵢ = 0   ⇒   p*ᵢ > 0.

    Finlayson et al. 2024, §4, Theorem 2 and figure 3 (papers.bib: finlayson2024closing).
    """
    rng = torch.Generator().manual_seed(seed)
    matrix_VD = torch.randn(30, 20, generator=rng, dtype=torch.float64)
    true_CV = torch.rand(20, 30, generator=rng, dtype=torch.float64)
    true_CV *= true_CV >= true_CV.topk(15).values[:, -1:]
    true_CV /= true_CV.sum(-1, keepdim=True)
    best_CV = at_optimum(matrix_VD, true_CV, pull=0.0)
    reached_C = optimality_gap(best_CV, true_CV, matrix_VD).residual_C < 1e-12
    test, counts = BasisTest(matrix_VD), {"wrong": 0, "lost": 0, "more": 0}
    for logp_V, true_V in zip(best_CV[reached_C], true_CV[reached_C], strict=True):
        tau = min(underestimation(logp_V[None], true_V[None]).tau, 1 - 1e-9)
        accepted_V, above_V = torch.from_numpy(test.mask(logp_V.exp().numpy(), tau)), logp_V.exp() > tau
        counts["wrong"] += int((accepted_V & (true_V == 0)).sum())
        counts["lost"] += int((above_V & ~accepted_V).sum())
        counts["more"] += int((accepted_V & ~above_V).sum())
    w, hidden = torch.tensor([[0.55], [0.71], [0.29]], dtype=torch.float64), 2.55
    example = BasisTest(w).mask((w[:, 0] * hidden).softmax(-1).numpy(), 1 - 1 / 1.9).tolist()
    progress(1.0)
    return {
        "contexts at the optimum": int(reached_C.sum()),
        "impossible tokens accepted": counts["wrong"],
        "lost of what the threshold keeps": counts["lost"],
        "accepted beyond the threshold": counts["more"],
        "example as in the document": float(example == [False, True, True]),
    }
