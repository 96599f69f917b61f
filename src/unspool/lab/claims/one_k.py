"""Claim: one k does not fit all contexts: it keeps too many of few possible words, and too few of many.

    top-k keeps k words everywhere;   top-p keeps the fewest words that have mass p

He He's lecture, "Truncated sampling: which k to choose?"; Holtzman et al. 2020, §3
(papers.bib: holtzman2020curious).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import unspool as us
from unspool.data.known_languages import ZipfMarkov
from unspool.lab.claim import Claim, Numbers, Progress, lecture
from unspool.lab.small_models import Lesson, sample_contexts, train_narrow
from unspool.plots.seeds import chart, lines

KS = (1, 2, 4, 8, 16, 32)
PS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98)


def overlap(kept_CV: Tensor, true_CV: Tensor) -> float:
    """Return the mean F₁ = 2|K ∩ S| / (|K| + |S|) of kept and possible words."""
    possible_CV = true_CV > 0
    both_C = (kept_CV & possible_CV).sum(-1).double()
    return float((2 * both_C / (kept_CV.sum(-1) + possible_CV.sum(-1))).mean())


@torch.no_grad()
def measure(seed: int, quick: bool, progress: Progress) -> Numbers:
    """Measure the noisy truth of a language with 1 to 32 successors per context, and a model of it."""
    language = ZipfMarkov(word_count=150, branching=32, decay=0.5, seed=seed)
    with torch.enable_grad():
        model = train_narrow(language, 64, Lesson(4000, 60 if quick else 700, 512, seed))
    progress(0.8)
    context_C2 = sample_contexts(language, 60 if quick else 500, seed)
    true_CV = torch.from_numpy(language.rows(context_C2.numpy()))
    # Not all words of the tail alike: what is equally probable cannot be cut apart.
    noise_CV = torch.empty_like(true_CV).exponential_(generator=torch.Generator().manual_seed(seed))
    tail_CV = (0.95 * true_CV + 0.05 * noise_CV / noise_CV.sum(-1, keepdim=True)).log()
    found: dict[str, Any] = {}
    for name, logp_CV in {"truth with a tail": tail_CV.float(), "trained model": model(context_C2)}.items():
        by_k = [overlap(us.survivors(us.TopK(k), logp_CV), true_CV) for k in KS]
        by_p = [overlap(us.survivors(us.TopP(p), logp_CV), true_CV) for p in PS]
        found |= {f"{name}: top-k": by_k, f"{name}: top-p": by_p}
        found |= {f"{name}: best of one k": max(by_k), f"{name}: best of one p": max(by_p)}
    sizes_C = (true_CV > 0).sum(-1).double()
    return {
        "words that can follow, 10 % of contexts have at most": float(sizes_C.quantile(0.1)),
        "… 90 % have at most": float(sizes_C.quantile(0.9)),
        **found,
        "setting": [float(at) for at in range(len(KS))],
    }


CLAIM = Claim(
    name="one_k",
    statement="A single k for different next-word distributions is suboptimal; top-p, whose k is dynamic, "
    "fits them.",
    source=lecture("Truncated sampling: which k to choose?", "holtzman2020curious", "fan2018hierarchical"),
    measured="An artificial language in which 1 to 32 words can follow a context. F₁ of the words that top-k "
    "and top-p keep and the possible ones, for six settings each: on the truth mixed with 5 % of "
    "noise, and on a trained model.",
    criterion={
        "contexts differ: 90 % quantile of possible words at least 5 times the 10 % quantile": lambda n: (
            n["… 90 % have at most"] >= 5 * n["words that can follow, 10 % of contexts have at most"]
        ),
        "truth with a tail: the best p is at least 0.05 better than the best k": lambda n: (
            n["truth with a tail: best of one p"] >= n["truth with a tail: best of one k"] + 0.05
        ),
        "trained model: the best p is at least 0.05 better than the best k": lambda n: (
            n["trained model: best of one p"] >= n["trained model: best of one k"] + 0.05
        ),
    },
    measure=measure,
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
