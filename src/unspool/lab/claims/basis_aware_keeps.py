"""Claim: a threshold discards true tokens that the basis-aware test can prove to be possible.

    accept i  ⇔  no p with Wᵀp = Wᵀp̂, 0 ≤ p ≤ e^δ p̂, pᵢ = 0        a threshold accepts if p̂ᵢ > 1 − e^(−δ)

Finlayson et al. 2024, §4, Theorem 2 and figure 3 (papers.bib: finlayson2024closing).
"""

from __future__ import annotations

import torch
from torch import Tensor

from unspool.basis import BasisTest
from unspool.data.known_languages import ZipfMarkov
from unspool.diagnose.overestimation import optimality_gap, underestimation
from unspool.lab.claim import Claim, Numbers, Progress, degeneration
from unspool.lab.small_models import Lesson, at_optimum, sample_contexts, train_narrow
from unspool.plots.seeds import bars, chart


def judged(test: BasisTest, logp_CV: Tensor, true_CV: Tensor) -> dict[str, float]:
    """Apply threshold and test in every context, with δ of the context."""
    found = dict.fromkeys(("threshold", "threshold wrong", "test", "test wrong"), 0.0)
    recall = {"threshold": 0.0, "test": 0.0}
    for logp_V, true_V in zip(logp_CV.double(), true_CV.double(), strict=True):
        p_V = logp_V.exp() / logp_V.exp().sum()
        tau = min(underestimation(logp_V[None], true_V[None]).tau, 1 - 1e-9)
        kept = {"threshold": p_V > tau, "test": torch.from_numpy(test.mask(p_V.numpy(), tau))}
        for name, kept_V in kept.items():
            found[name] += int((kept_V & (true_V > 0)).sum())
            found[f"{name} wrong"] += int((kept_V & (true_V == 0)).sum())
            recall[name] += float(true_V[kept_V].sum()) / len(logp_CV)
    return {**found, **{f"{name} recall": share for name, share in recall.items()}}


@torch.no_grad()
def measure(seed: int, quick: bool, progress: Progress) -> Numbers:
    """Measure at the optimum of Theorem 2, and as trained."""
    language = ZipfMarkov(word_count=100, branching=12, seed=seed)
    with torch.enable_grad():
        model = train_narrow(language, 8, Lesson(3000, 60 if quick else 600, 512, seed))
    progress(0.4)
    context_C2 = sample_contexts(language, 15 if quick else 120, seed)
    true_CV = torch.from_numpy(language.rows(context_C2.numpy()))
    matrix_VD = model.head.weight.detach()
    best_CV = at_optimum(matrix_VD, true_CV, pull=0.0)
    reached_C = optimality_gap(best_CV, true_CV, matrix_VD).residual_C < 1e-12
    progress(0.6)
    test = BasisTest(matrix_VD)
    optimal = judged(test, best_CV[reached_C], true_CV[reached_C])
    progress(0.8)
    trained = judged(test, model(context_C2), true_CV)
    # The document's example: δ = log 1.9, p̂ = (.331, .498, .171); tokens 2 and 3 are accepted.
    w, hidden = torch.tensor([[0.55], [0.71], [0.29]], dtype=torch.float64), 2.55
    example = BasisTest(w).mask((w[:, 0] * hidden).softmax(-1).numpy(), 1 - 1 / 1.9).tolist()
    gain = trained["test"] + trained["test wrong"] - trained["threshold"] - trained["threshold wrong"]
    wrong = trained["test wrong"] - trained["threshold wrong"]
    return {
        "contexts at the optimum": int(reached_C.sum()),
        **{f"at the optimum: {name}": value for name, value in optimal.items()},
        **{f"as trained: {name}": value for name, value in trained.items()},
        "as trained: of what the test adds, possible": 1 - wrong / gain if gain else 0.0,
        "worked example as in the document": float(example == [False, True, True]),
    }


CLAIM = Claim(
    name="basis_aware_keeps",
    statement="Threshold sampling discards true tokens; the basis-aware test keeps many of them without "
    "keeping impossible ones.",
    source=degeneration("Theorem 2 and the example of figure 3"),
    measured="The model of safe_threshold, twice: as trained, and with the hidden vectors that are best for "
    "the truth (there Wᵀp̂ = Wᵀp*, as the theorem requires). In each of 120 contexts, with δ of the "
    "context, a threshold at 1 − e^(−δ) and the basis-aware test at full rank.",
    criterion={
        "at the optimum the test keeps no impossible token": lambda n: n["at the optimum: test wrong"] == 0,
        "at the optimum the test leaves at least 0.05 more of the truth's mass than the "
        "threshold": lambda n: (
            n["at the optimum: test recall"] >= n["at the optimum: threshold recall"] + 0.05
        ),
        "as trained, at least 95 % of the tokens that the test adds are possible": lambda n: (
            n["as trained: of what the test adds, possible"] >= 0.95
        ),
        "the document's worked example comes out": lambda n: n["worked example as in the document"] == 1.0,
    },
    measure=measure,
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
